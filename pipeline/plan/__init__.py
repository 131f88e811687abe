"""Plan: which segments go in, what comes out, and why. Deterministic for the same metadata, policy and clock."""

from pipeline.plan.failure import FailedPlan, Failure, failed_plans, waiting
from pipeline.plan.make import plan_partition, plan_table
from pipeline.plan.plan import Input, Plan

__all__ = ["FailedPlan", "Failure", "Input", "Plan", "failed_plans", "plan_partition", "plan_table", "waiting"]
