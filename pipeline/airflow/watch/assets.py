"""What a table's DAG is scheduled on, and what others may be scheduled on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import (
    Asset,
    AssetAlias,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    get_current_context,
)

from pipeline.airflow.configuration import TableSettings
from pipeline.airflow.watch.trigger import ThresholdTrigger

if TYPE_CHECKING:
    from pipeline.publish import Publication


def due_in(table: str) -> Asset:
    """What has become due in a table. Its events start the DAG; an ingesting DAG may have it as an outlet."""
    return Asset(f"{table} is due", f"firn://due/{table}")


def compacted(table: str) -> Asset:
    """The compacted table, for other DAGs to be scheduled on; every event carries the figures of its commits."""
    return Asset(table, f"firn://tables/{table}")


def outlet_of(table: str) -> AssetAlias:
    """The outlet of tasks that publish: it stands for the compacted table whenever one has published."""
    return AssetAlias(f"what Firn publishes in {table}")


def schedule_of(settings: TableSettings, watched: Sequence[str]) -> AssetOrTimeSchedule:
    """When something becomes due, and by the clock: what is due then was put off, or nobody heard of it.

    ``watched`` are all tables that the triggerer looks at.
    """
    asset = due_in(settings.name)
    if settings.watched:
        asset.watchers = [AssetWatcher(f"thresholds of {settings.name}", ThresholdTrigger(settings.name, watched))]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(settings.schedule, timezone="UTC"), assets=[asset])


def announce(table: str, lane: str, publications: "Sequence[Publication]") -> None:
    """Tell who waits for the compacted table, with the figures of this lane's commits; not when there were none."""
    counts = [one.counts for one in publications if one.counts]
    if not counts:
        return

    from pipeline.history.record_counts import RecordCounts

    figures = {name: count for name, count in RecordCounts.total(counts).model_dump().items() if count}
    # As text: a browser's numbers are not as long.
    snapshot_id = str(publications[-1].snapshot_id)
    said = {"lane": lane, "snapshot_id": snapshot_id, "topic_partitions": len(counts), **figures}
    get_current_context()["outlet_events"][outlet_of(table)].add(compacted(table), extra=said)
