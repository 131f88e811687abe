"""Pages: statuses of tables as they get them, as large as somebody wants, made without a lake; and what a browser
sees."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from firnlake.ingest.quarantine import Batch
from firnlake.inspect.status import (
    Level,
    PartitionCondition,
    PartitionStatus,
    Status,
    TopicSpace,
    sums,
    write,
)
from firnlake.table.history import CommitSummary, Counts
from firnlake.table.segment import TopicPartition

TAKEN = 1_795_240_800_000
"""When they were taken, epoch milliseconds."""

MINUTE, HOUR = 60_000, 3_600_000

ROW_DELETES = (
    "segment 00017-{}.parquet (level 0) is listed 2 times and has row-level delete files (2); allowed: one of the two "
    "(apply the deletes with rewrite_data_files first)"
)
YOUNG = "segment 00003.parquet and later ones are not cleaned until 2026-11-22T07:00:00Z (min.compaction.lag.ms = 1d)"
REFUSED = (
    "plan 38c89567529d45fc (full) was refused by validate 3 h ago: expect_newest_record_kept: 2 newer records are "
    "missing; it waits until its segments change, or for `firn retry`"
)


def parts_of(count: int, topic: str = "orders") -> list[PartitionStatus]:
    """Topic partitions of ``topic``: of a hundred three can't be cleaned, ten are due, five wait, one was refused."""
    return [part_of(topic, partition) for partition in range(count)]


def part_of(topic: str, partition: int, **others: Any) -> PartitionStatus:
    """One topic partition, its figures told by its number."""
    kind = partition % 100
    landed, merged, cleaned, tail = (partition * 7919) % 97 * 40_000, kind * 90_000, kind * 300_000, 40_000_000
    if 3 <= kind < 13:
        landed += 70_000_000
    dirty = (landed + merged + cleaned) / (landed + merged + cleaned + tail)
    facts: dict[str, Any] = {
        "topic_partition": TopicPartition(topic, partition),
        "condition": PartitionCondition.IDLE,
        "levels": tuple(map(level_of, range(4), (landed, merged, cleaned, tail), (11, 2, 1, 3))),
        "dirty_ratio": dirty,
        "lag_ms": kind * MINUTE if kind else None,
        "cleanable_bytes": landed + merged,
        "uncleanable_bytes": 0,
        "cleaned_through": 0,
        "first_dirty_offset": partition * 1000,
        "due": {},
        "due_in_ms": None,
        "blockers": (),
        "waiting": (),
        "quarantined": 0,
    }
    if kind < 3:
        facts |= {"condition": PartitionCondition.UNCLEANABLE, "blockers": (ROW_DELETES.format(partition),)}
    elif kind < 13:
        due = {"full": f"dirty ratio {dirty:.3f} > 0.5"}
        facts |= {"condition": PartitionCondition.DUE, "due": due, "due_in_ms": 0}
    elif kind < 18:
        facts |= {"condition": PartitionCondition.WAITING, "waiting": (YOUNG,)}
    elif kind == 18:
        facts |= {"condition": PartitionCondition.REFUSED, "quarantined": 12, "blockers": (REFUSED,)}
    return PartitionStatus(**facts | others)


def level_of(level: int, size: int, segments: int) -> Level:
    """One level; without bytes, it has no segment."""
    return Level(level=level, segments=segments if size else 0, records=size // 150, bytes=size)


def status_of(table: str = "shop.orders", parts: list[PartitionStatus] | None = None, **facts: Any) -> Status:
    """The status of ``table`` with ``parts``, overridden by ``facts``."""
    parts = parts_of(300) if parts is None else parts
    made: dict[str, Any] = {
        "table": table,
        "snapshot_id": 2652639534576512999,
        "taken_ms": TAKEN,
        "topic_partitions": len(parts),
        "levels": sums(parts),
        "conditions": {one: sum(part.condition is one for part in parts) for one in PartitionCondition},
        "max_dirty_ratio": max((part.dirty_ratio for part in parts), default=0.0),
        "max_lag_ms": 99 * MINUTE,
        "quarantined_records": sum(part.quarantined for part in parts),
        "tombstones": {"known": 120, "stamped": 40, "due": 4, "overdue": 0, "oldest_ms": TAKEN},
        "landed_bytes": 91_000_000_000,
        "written_bytes": 139_000_000_000,
        "saved_bytes": 62_000_000_000,
        "since_ms": TAKEN - 30 * 24 * HOUR,
        "history_bytes": 38_000_000_000,
        "expirable_bytes": 29_500_000_000,
        "publications": tuple(map(publication_of, range(8))),
        "quarantine": tuple(batch_of(part) for part in parts if part.quarantined)[:20],
        "topics": tuple(
            TopicSpace(
                topic=topic,
                main_bytes=sum(part.bytes for part in parts if part.topic_partition.topic == topic),
                side_bytes=21_000_000,
            )
            for topic in dict.fromkeys(part.topic_partition.topic for part in parts)
        ),
        "strays": (),
        "doubts": ("orders: max.compaction.lag.ms 600000 can't be met at what lands now: merge and full take 25 min",),
        "partitions": tuple(parts),
    }
    return Status(**made | facts)


def write_overview(
    home: Path, table: str = "shop.orders", parts: list[PartitionStatus] | None = None, **facts: Any
) -> Path:
    """Write that status."""
    return write(home, status_of(table, parts, **facts))


def batch_of(part: PartitionStatus) -> Batch:
    """What is quarantined of a topic partition."""
    first = part.first_dirty_offset or 0
    size = part.quarantined * 900
    return Batch(part.topic_partition, "38c89567529d45fc", part.quarantined, size, first, first + 400)


def publication_of(number: int) -> CommitSummary:
    """A commit that is ``number`` hours old."""
    several = number % 3 == 1
    at_ms = TAKEN - number * HOUR
    return CommitSummary(
        snapshot_id=1809724136472545229 - number,
        at_ms=at_ms,
        job_id=f"{number:016x}",
        lane=("full", "idle", "merge", "tier")[number % 4],
        topic_partition=None if several else TopicPartition("orders", number),
        plans=256 if several else 1,
        reason=None if several else "dirty ratio 0.664 > 0.5",
        now_ms=at_ms,
        counts=Counts(
            segments_in=4_120,
            segments_out=256,
            records_in=9_100_000,
            records_out=4_870_000,
            superseded=4_217_600,
            bytes_in=1_420_000_000,
            bytes_out=830_000_000,
            tombstones_removed=12_400,
            quarantined=12 * (number % 2),
        ),
        validation=f"{number:016x}-0123abcd",
    )


def text_of(page: Path) -> str:
    """What a reader of a data-quality page reads, on one line."""
    body = page.read_text(encoding="utf-8").split("<main>")[1]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


class Page(HTMLParser):
    """A page's elements, links and text. An AssertionError where an element has a script of its own."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data
