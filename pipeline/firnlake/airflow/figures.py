"""What people see of plans in Airflow's UI before they approve a publication, and the metrics of tables.

Metrics are sent through Airflow's StatsD or OpenTelemetry, under Kafka's names if Kafka has them: Kafka's are the
gauges of ``kafka.log:type=LogCleaner`` and ``type=LogCleanerManager``. Each metric is sent twice: with the table as a
tag, and with the table in the name, because plain StatsD drops tags.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

from firnlake.clock import now_ms
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status import Status, write_snapshot
from firnlake.job.plan import Plan
from firnlake.job.stage import MOST_PLANS, Stage, open_stages
from firnlake_expectations.data_quality import build_pages, page_of
from firnlake_expectations.wording import fates, printable

MOST_JOBS = 1000
"""Maximum number of mapped jobs of a lane; Airflow's default allows 1024 (``core.max_map_length``)."""


class MappedJob(TypedDict):
    """One batch of plans: its name, their stages and their input bytes."""

    name: str
    stages: list[str]
    input_bytes: int


def mapped_jobs(lake: Lake, plans: Sequence[Plan], plans_per_job: int) -> Iterator[MappedJob]:
    """Jobs of up to ``plans_per_job`` plans each, whose stages are now open; of more if there are so many plans. Jobs
    of lane `retain`, which reads no records, are larger, and so are those of lane `convert`, because it removes a
    delete file only if one job has all topic partitions that the file applies to."""
    most = max(plans_per_job, -(-len(plans) // MOST_JOBS))
    if plans and plans[0].lane.traits.writes != "segments":
        most = max(most, MOST_PLANS)
    for chosen in (plans[start : start + most] for start in range(0, len(plans), most)):
        yield MappedJob(
            name=f"{chosen[0].topic_partition}{f' and {len(chosen) - 1} more' if len(chosen) > 1 else ''}",
            stages=open_stages(lake, chosen),
            input_bytes=sum(one.read_bytes for one in chosen),
        )


SHOWN = 100
FIGURES = 5
"""Number of columns that have counts."""
_HEADER = (
    "| topic partition | records in | records out | gone | bytes in | bytes out | verdict |\n"
    "| --- | ---: | ---: | --- | ---: | ---: | --- |"
)


def figures_of(lake: Lake, stages: Iterable[str]) -> str:
    """A Markdown table with a row for each plan of ``stages``, at most SHOWN rows."""
    rows = [row for name in stages for row in _rows(lake, name)]
    more = f"\n\n… and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"{_HEADER}\n" + "\n".join(rows[:SHOWN]) + more


def _rows(lake: Lake, name: str) -> Iterator[str]:
    """A row for each plan of the stage ``name``; one that says why if the stage can't be read."""
    try:
        stage = Stage.load(lake, name)
    except FirnError as error:
        yield _in_row(name, _as_text(str(error)))
        return
    for plan in stage.plans:
        change, verdict = stage.changes.get(plan.id), stage.verdicts.get(plan.id)
        if not change or not verdict:
            yield _in_row(str(plan.topic_partition), "not compacted, or not validated")
            continue
        counts = change.counts
        records = f"{counts.records_in:,}", f"{counts.records_out:,}", fates(counts.model_dump())
        passed = "passed" if verdict.passed else "**failed**: will not be published"
        yield _in_row(str(plan.topic_partition), passed, *records, f"{counts.bytes_in:,}", f"{counts.bytes_out:,}")


def _in_row(name: str, verdict: str, *figures: str) -> str:
    return f"| {_as_text(name)} | {' | '.join(figures or [''] * FIGURES)} | {verdict} |"


def _as_text(name: str) -> str:
    """``name`` in Markdown, with all punctuation escaped except dots and dashes."""
    return re.sub(r"([!-,/:-@\[-`{-~])", r"\\\1", printable(name))


def update(lake: Lake, table: str, *, judged: bool = False) -> Status:
    """Store and return the status of the table as it is now, which its page shows, and send it as metrics.

    Builds the pages of the data-quality report if something was ``judged``, or if the table has no such page yet.
    """
    from airflow.sdk.observability.stats import Stats

    status = write_snapshot(lake, table, now_ms())
    if judged or not (lake.reports_folder / page_of(table)).exists():
        build_pages(lake.reports_folder)
    for name, value in metrics(status).items():
        Stats.gauge(f"firn.{name}", value, tags={"table": table})
        Stats.gauge(f"firn.{table}.{name}", value)
    return status


def metrics(status: Status) -> Mapping[str, float]:
    """Metrics by name, without metrics that do not apply to the table's current state."""
    last = status.last_publication.counts if status.last_publication else None
    values: dict[str, float | None] = {
        # Kafka's metrics: the dirtiest log, the logs that can't be cleaned, the longest wait, the last commit.
        "max-dirty-percent": 100 * status.max_dirty_ratio,
        "uncleanable-partitions-count": status.uncleanable_partitions,
        "max-compaction-delay-secs": (status.max_lag_ms or 0) / 1000,
        "cleaner-recopy-percent": 100 * last.bytes_out / last.bytes_in if last and last.bytes_in else None,
        # Firn's own metrics.
        "write-amplification": status.write_amplification,
        "saved-bytes": status.saved_bytes,
        "quarantined-records": status.quarantined_records,
        "segments": sum(level.segments for level in status.levels),
        "main-bytes": status.main_bytes,
        "side-bytes": status.side_bytes,
        "history-bytes": status.history_bytes,
        "expirable-bytes": status.expirable_bytes,
    }
    return {name: value for name, value in values.items() if value is not None}
