"""Publish: the one commit on the real table that swaps a plan's inputs for the validated stage's files. No JVM."""

from pipeline.publish.publish import Publication, publish

__all__ = ["Publication", "publish"]
