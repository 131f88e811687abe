"""What takes room and is of no use any more: found and named with the reason, and removed when that is asked for."""

from pipeline.gc.collect import collect_home, collect_table
from pipeline.gc.finding import Finding, Kind

__all__ = ["Finding", "Kind", "collect_home", "collect_table"]
