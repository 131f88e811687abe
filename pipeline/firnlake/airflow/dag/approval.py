"""Figures for the person who approves a publication: the record counts and the verdict of every plan."""

import re
from collections.abc import Sequence

from firnlake.errors import FirnError, printable
from firnlake.iceberg.catalog import Lake
from firnlake.job.job import Job
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


def figures_of(lake: Lake, jobs: Sequence[Job]) -> str:
    """A Markdown table with a row for each plan of ``jobs``, at most SHOWN rows."""
    by_plan = {plan_id: row for job in jobs for plan_id, row in _rows(lake, job).items()}
    plans = [plan for job in jobs for plan in job]
    rows = [by_plan.get(plan.id) or _row(plan, "not compacted, or not validated") for plan in plans[:SHOWN]]
    more = f"\n\n… and {len(plans) - SHOWN} more" if len(plans) > SHOWN else ""
    return f"{_HEADER}\n" + "\n".join(rows) + more


def _rows(lake: Lake, job: Job) -> dict[str, str]:
    """Rows by plan id; none if the stage of the job can't be read."""
    try:
        stage = Stage.load(lake, job.stage)
    except FirnError:
        return {}
    return {plan.id: _judged(stage, plan) for plan in stage.plans}


def _judged(stage: Stage, plan: Plan) -> str:
    own, verdict = stage.changes.get(plan.id), (stage.verdicts or {}).get(plan.id)
    if not own or not verdict:
        return _row(plan, "not compacted, or not validated")
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
    return _row(plan, "passed" if verdict["passed"] else "**failed**: will not be published", *figures)


def _row(plan: Plan, verdict: str, *counts: int | str) -> str:
    cells = [f"{count:,}" if isinstance(count, int) else count for count in counts] or [""] * FIGURES
    return f"| {_as_text(str(plan.topic_partition))} | {' | '.join(cells)} | {verdict} |"


def _as_text(name: str) -> str:
    """``name`` in Markdown, with all punctuation escaped except dots and dashes."""
    return re.sub(r"([!-,/:-@\[-`{-~])", r"\\\1", printable(name))
