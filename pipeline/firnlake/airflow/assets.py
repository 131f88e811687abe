"""The assets that start the DAG of a table, and the assets that may start other DAGs."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import (
    Asset,
    AssetAlias,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    get_current_context,
)
from airflow.sdk.exceptions import AirflowException
from airflow.timetables.trigger import CronTriggerTimetable as SchedulersTimetable

from firnlake.airflow.configuration import TableSettings
from firnlake.airflow.trigger import ThresholdTrigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firnlake.job.outcomes import PlanOutcome


def due_in(table: str) -> Asset:
    """The asset for due work in a table. Its events start the table's DAG; other DAGs may have it as an outlet."""
    return Asset(f"{table} is due", f"firn://due/{_quoted(table)}")


def compacted(table: str) -> Asset:
    """The asset for the compacted table, on which other DAGs may be scheduled. Events have the commits' figures."""
    return Asset(table, f"firn://tables/{_quoted(table)}")


def outlet_of(table: str) -> AssetAlias:
    """The outlet of publishing tasks: an alias that a task resolves to the compacted table when it has published."""
    return AssetAlias(f"publications of Firn in {table}")


def schedule_of(settings: TableSettings) -> AssetOrTimeSchedule:
    """The schedule of a table's DAG: runs start when a lane becomes due, and at the times of a cron expression.

    The cron expression covers postponed or missed work. Raises ValueError for a wrong cron expression.
    """
    try:
        # The timetable of airflow.sdk is checked only when Airflow serializes the whole DAG file.
        SchedulersTimetable(settings.schedule, timezone="UTC").validate()
    except AirflowException as error:
        raise ValueError(f"schedule is {settings.schedule!r}: {error}; allowed: a cron expression") from error
    asset = due_in(settings.name)
    if settings.watched:
        asset.watchers = [AssetWatcher(f"thresholds of {settings.name}", ThresholdTrigger(settings.name))]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(settings.schedule, timezone="UTC"), assets=[asset])


def announce(table: str, lane: str, publications: "Sequence[PlanOutcome]") -> None:
    """Emit an event for the compacted table with the figures of this lane's commits, if there are any."""
    counts = [one.counts for one in publications if one.counts]
    if not counts:
        return

    from firnlake.table.history import Counts

    figures = {name: count for name, count in Counts.total(counts).model_dump().items() if count}
    # As text, because 64-bit numbers lose digits in a browser.
    snapshot_id = str(publications[-1].snapshot_id)
    said = {"lane": lane, "snapshot_id": snapshot_id, "topic_partitions": len(counts), **figures}
    get_current_context()["outlet_events"][outlet_of(table)].add(compacted(table), extra=said)


def _quoted(table: str) -> str:
    # Airflow drops the part of a URI after # and sorts the part after ?, so two tables could share a URI.
    return quote(table, safe="")
