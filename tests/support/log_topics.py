"""A topic with the columns for transactions, filled from Kafka's own log segments."""

from pathlib import Path

from firnlake.ingest.land import land
from firnlake.table import records
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.topics import LOW_THRESHOLDS, NOW, Topic


class Log:
    """A topic with the columns for transactions, filled from log segments.

    An entry is ``key=value``, ``key=`` (a tombstone) or ``-=value`` (no key); in a transaction ``1 key=value``, and
    ``1 commit`` or ``1 abort`` ends one of producer 1.
    """

    def __init__(self, topic: Topic, folder: Path) -> None:
        self.topic, self.folder, self.offset = topic, folder / f"{topic.name}-0", 0

    def create(self, **properties: str) -> "Log":
        chosen = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
        records.create(self.topic.lake, self.topic.table, LOW_THRESHOLDS | chosen, transactions=True)
        self.topic.made = True
        return self

    def land(self, *entries: str, start: int | None = None, epoch: int = 0) -> "Log":
        """One segment; offsets go on where the last one ended, or from ``start``."""
        if not self.topic.made:
            self.create()
        first = self.offset if start is None else start
        built = [_batch(entry, offset, epoch) for offset, entry in enumerate(entries, first)]
        land(self.topic.lake, self.topic.table, [segment(self.folder, *built)])
        self.offset = max(self.offset, first + len(entries))
        return self

    def full(self, now: int = NOW) -> dict[str, int]:
        """Clean all that may be cleaned; what went, by its reason."""
        (counts,) = self.topic.clean("full", now, force=True)
        names = ("superseded", "tombstones_removed", "quarantined", "aborted", "markers_removed")
        return {name: number for name in names if (number := getattr(counts, name))}

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.topic.rows()]


def _batch(entry: str, offset: int, epoch: int) -> bytes:
    head, _, rest = entry.rpartition(" ")
    if rest in ("commit", "abort"):
        return marker(offset, (int(head), epoch), commit=rest == "commit")
    key, _, value = rest.partition("=")
    written = Entry(offset, None if key == "-" else key.encode(), value.encode() or None)
    return batch(written, producer=(int(head), epoch), transactional=True) if head else batch(written)
