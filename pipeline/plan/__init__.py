"""Plan: which segments go in, what comes out, and why. Deterministic for the same metadata, policy and clock."""

from pipeline.plan.make import plan_partition, plan_table
from pipeline.plan.marker import Failure, Marker, markers, waiting
from pipeline.plan.plan import Input, Plan

__all__ = ["Failure", "Input", "Marker", "Plan", "markers", "plan_partition", "plan_table", "waiting"]
