"""Compact: Spark reads a plan's inputs from its stage and writes what is left as the stage's result."""

from pipeline.compact.compact import Outcome, compact

__all__ = ["Outcome", "compact"]
