"""Publish: the one commit on the real table that carries plans out, by metadata alone. No JVM.

``publish_job`` swaps the inputs of a stage's plans for its validated files, ``retain_job`` only removes inputs;
``publish`` and ``retain`` do so for one plan and raise its failure; ``publish_stages`` and ``retain_plans`` process
several jobs.
"""

from pipeline.publish.optimistic_commit import Publication, PublishResult
from pipeline.publish.publish import publish, publish_job
from pipeline.publish.publish_jobs import publish_stages, retain_plans
from pipeline.publish.retain import retain, retain_job

__all__ = [
    "Publication",
    "PublishResult",
    "publish",
    "publish_job",
    "publish_stages",
    "retain",
    "retain_job",
    "retain_plans",
]
