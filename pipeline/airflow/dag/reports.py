"""Building the data-quality pages in a task."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.lake import Lake


def build(lake: "Lake") -> str:
    """Build the pages of all stored validation results; the path of the first one."""
    # Hundreds of lines about itself, from its import on, would bury what the task says.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)

    from pipeline.validate import build_reports

    return str(build_reports(lake))
