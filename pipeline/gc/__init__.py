"""Garbage collection: find stale files and name the reasons; remove them on request."""

from pipeline.gc.collect import collect_home, collect_table
from pipeline.gc.garbage import Garbage, Kind

__all__ = ["Garbage", "Kind", "collect_home", "collect_table"]
