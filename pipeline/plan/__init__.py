"""Plan: which segments go in, what comes out, and why. Deterministic for the same metadata, policy and clock."""

from pipeline.plan.admission import Postponed
from pipeline.plan.failure import FailedPlan, Failure, failed_plans, waiting
from pipeline.plan.job import Job, jobs_of
from pipeline.plan.make import Work, plan_lanes, plan_partition, plan_table, plan_work
from pipeline.plan.plan import Input, Plan

__all__ = [
    "FailedPlan",
    "Failure",
    "Input",
    "Job",
    "Plan",
    "Postponed",
    "Work",
    "failed_plans",
    "jobs_of",
    "plan_lanes",
    "plan_partition",
    "plan_table",
    "plan_work",
    "waiting",
]
