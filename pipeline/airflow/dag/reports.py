"""The build of the data-quality pages in a task."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.lake import Lake


def build(lake: "Lake") -> str:
    """Build the pages of all stored validation results; returns the path of the front page."""
    # Great Expectations logs hundreds of lines from its import on, which would bury the task's own.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)

    from pipeline.validate import build_reports

    return str(build_reports(lake))
