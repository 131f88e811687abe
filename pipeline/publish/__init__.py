"""Publish: the one commit on the real table that carries plans out, by metadata alone. No JVM.

``publish_job`` swaps the inputs of a stage's plans for its validated files, ``retain_job`` only takes inputs out;
``publish`` and ``retain`` do so for one plan and raise what the others name; ``publish_stages`` and ``retain_plans`` go
through several jobs.
"""

from pipeline.publish.batch import publish_stages, retain_plans
from pipeline.publish.publish import publish, publish_job
from pipeline.publish.race import Publication, Published
from pipeline.publish.retain import retain, retain_job

__all__ = [
    "Publication",
    "Published",
    "publish",
    "publish_job",
    "publish_stages",
    "retain",
    "retain_job",
    "retain_plans",
]
