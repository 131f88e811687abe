"""The metrics of a table, sent through Airflow's StatsD or OpenTelemetry, under Kafka's names if Kafka has them.

Kafka's metrics are the gauges of ``kafka.log:type=LogCleaner`` and ``type=LogCleanerManager``. Each metric is sent
twice: with the table as a tag, and with the table in the name, because plain StatsD drops tags.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.observability.stats import Stats

from firnlake.inspect.gather import write_snapshot

if TYPE_CHECKING:
    from firnlake.iceberg.catalog import Lake
    from firnlake.inspect.status import Status


def send(lake: "Lake", table: str, now_ms: int) -> "Status":
    """Update the table's page and send its metrics; return its status."""
    status = write_snapshot(lake, table, now_ms)
    for name, value in metrics(status).items():
        Stats.gauge(f"firn.{name}", value, tags={"table": table})
        Stats.gauge(f"firn.{table}.{name}", value)
    return status


def metrics(status: "Status") -> Mapping[str, float]:
    """Metrics by name, without metrics that do not apply to the table's current state."""
    last = status.last_publication
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
