"""Figures for the person who approves a publication: the record counts and the verdict of every plan."""

import re
from collections.abc import Iterable

from firnlake.errors import FirnError, printable
from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake_expectations.wording import fates

SHOWN = 100
FIGURES = 8
"""Number of columns that have counts."""
_HEADER = (
    "| topic partition | records in | records out | superseded | tombstones removed | erased | also gone | bytes in | "
    "bytes out | verdict |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- |"
)


def figures_of(lake: Lake, stages: Iterable[str]) -> str:
    """A Markdown table with a row for each plan of ``stages``, at most SHOWN rows."""
    rows = [row for name in stages for row in _rows(lake, name)]
    more = f"\n\n… and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{_HEADER}\n" + "\n".join(rows[:SHOWN]) + more


def _rows(lake: Lake, name: str) -> list[str]:
    """A row for each plan of the stage ``name``; one that says why if the stage can't be read."""
    try:
        stage = Stage.load(lake, name)
    except FirnError as error:
        return [_in_row(name, _as_text(str(error)))]
    return [_judged(stage, plan) for plan in stage.plans]


def _judged(stage: Stage, plan: Plan) -> str:
    own, verdict = stage.changes.get(plan.id), stage.verdicts.get(plan.id)
    if not own or not verdict:
        return _in_row(str(plan.topic_partition), "not compacted, or not validated")
    counts = own.counts
    figures = (
        counts.records_in,
        counts.records_out,
        counts.superseded,
        counts.tombstones_removed,
        counts.erased,
        fates(counts.model_dump(), but=("superseded", "tombstones_removed", "erased")),
        counts.bytes_in,
        counts.bytes_out,
    )
    passed = "passed" if verdict.passed else "**failed**: will not be published"
    return _in_row(str(plan.topic_partition), passed, *figures)


def _in_row(name: str, verdict: str, *counts: int | str) -> str:
    cells = [f"{count:,}" if isinstance(count, int) else count for count in counts] or [""] * FIGURES
    return f"| {_as_text(name)} | {' | '.join(cells)} | {verdict} |"


def _as_text(name: str) -> str:
    """``name`` in Markdown, with all punctuation escaped except dots and dashes."""
    return re.sub(r"([!-,/:-@\[-`{-~])", r"\\\1", printable(name))
