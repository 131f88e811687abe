"""Plan: which segments go in, what comes out, and why. Deterministic for the same metadata, policy and clock."""

from pipeline.plan.make import plan_partition, plan_table
from pipeline.plan.plan import Input, Plan

__all__ = ["Input", "Plan", "plan_partition", "plan_table"]
