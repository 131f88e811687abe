"""Publish: the one commit on the real table that carries a plan out, by metadata alone. No JVM.

``publish`` swaps a plan's inputs for the validated stage's files, ``retain`` only takes inputs out.
"""

from pipeline.publish.publish import Publication, publish
from pipeline.publish.retain import retain

__all__ = ["Publication", "publish", "retain"]
