"""What a table's snapshots tell of Firn's work: its last commits, and the sums of all of them (C24)."""

from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from pipeline.overview import Publication
from pipeline.stage.accounting import Accounting
from pipeline.stage.published import LANE, PLANS, REASON, TOPIC_PARTITION

KEPT = 50


@dataclass(frozen=True)
class Work:
    """Sums in bytes over the snapshots that are still known, the oldest of which is of ``since_ms``."""

    landed_bytes: int
    written_bytes: int
    saved_bytes: int
    since_ms: int | None
    publications: tuple[Publication, ...]
    """The newest KEPT, newest first."""


def work_on(table: Table) -> Work:
    """What landed in ``table``, and what Firn has made of it, as far as its snapshots reach."""
    landed, publications = 0, []
    since = None
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        since = snapshot.timestamp_ms
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        if LANE in said:
            # Anybody may write a summary: what is not as Firn writes it is left out.
            with suppress(ValidationError):
                publications.append(_publication(snapshot, said))
        elif snapshot.summary and snapshot.summary.operation is Operation.APPEND:
            landed += int(said.get("added-files-size", 0))
    return Work(
        landed_bytes=landed,
        written_bytes=sum(one.bytes_out for one in publications),
        saved_bytes=sum(one.bytes_in - one.bytes_out for one in publications),
        since_ms=since,
        publications=tuple(publications[:KEPT]),
    )


def _publication(snapshot: Snapshot, said: dict[str, str]) -> Publication:
    books = Accounting.of_summary(said)
    return Publication(
        snapshot_id=snapshot.snapshot_id,
        at_ms=snapshot.timestamp_ms,
        lane=said[LANE],
        what=said.get(TOPIC_PARTITION) or f"{said.get(PLANS, 0)} topic partitions",
        reason=said.get(REASON),
        segments_in=books.segments_in,
        segments_out=books.segments_out,
        records_in=books.records_in,
        records_out=books.records_out,
        bytes_in=books.bytes_in,
        bytes_out=books.bytes_out,
        tombstones_removed=books.tombstones_removed,
        quarantined=books.quarantined,
    )
