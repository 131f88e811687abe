"""Run: the whole chain in one process, lane after lane."""

from pipeline.run.run import LaneRun, run

__all__ = ["LaneRun", "run"]
