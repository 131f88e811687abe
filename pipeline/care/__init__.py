"""Care for tables: expire snapshots, delete the files that nothing reaches, and name the reasons."""

from pipeline.care.care import ALL, HOURLY, Part, care_home, care_table
from pipeline.care.garbage import Garbage, Kind

__all__ = ["ALL", "HOURLY", "Garbage", "Kind", "Part", "care_home", "care_table"]
