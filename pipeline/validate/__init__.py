"""Validate: check a job's output against its input and the promises; Great Expectations judges the findings.

It shares no code with the cleaner, except for opening data files.
"""

from pipeline.validate.validate import Judged, build_reports, validate

__all__ = ["Judged", "build_reports", "validate"]
