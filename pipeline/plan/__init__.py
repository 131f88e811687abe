"""Plan: inputs, outputs and reason of each piece of work, deterministic for equal metadata, policy and clock."""

from pipeline.plan.failure import FailedPlan, Failure, failed_plans, waiting
from pipeline.plan.job import Job, jobs_of
from pipeline.plan.make import LanePlans, first_due, plan_lanes, plan_partition, plan_table, plan_work
from pipeline.plan.plan import Input, Plan
from pipeline.plan.run_budget import Postponed

__all__ = [
    "FailedPlan",
    "Failure",
    "Input",
    "Job",
    "LanePlans",
    "Plan",
    "Postponed",
    "failed_plans",
    "first_due",
    "jobs_of",
    "plan_lanes",
    "plan_partition",
    "plan_table",
    "plan_work",
    "waiting",
]
