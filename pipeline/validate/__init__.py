"""Validate: what a job wrote is held to the promises, against what it read; Great Expectations judges the findings.

Nothing of how the cleaner works is shared, but for how a data file is opened.
"""

from pipeline.validate.validate import Judged, build_reports, validate

__all__ = ["Judged", "build_reports", "validate"]
