"""Pages: statuses of tables as they get them, as large as somebody wants, made without a lake; and what a browser
sees."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa

from firnlake.inspect.status.document import (
    Details,
    LaneCommit,
    LaneVerdict,
    Level,
    Quarantined,
    Summary,
    TableSpace,
    TopicSpace,
)
from firnlake.inspect.status.rows import COLUMNS, Status, write

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


SPACE = TableSpace(
    main_bytes=14_000_000_000,
    side_bytes=21_000_000,
    history_bytes=38_000_000_000,
    expirable_bytes=29_500_000_000,
    compactable_bytes=3_100_000_000,
    history_is_exact=True,
    expirable_is_exact=True,
)


def rows_of(count: int, topic: str = "orders") -> list[dict[str, Any]]:
    """Topic partitions of ``topic``: of a hundred three can't be cleaned, ten are due, five wait, one was refused."""
    return [row_of(topic, partition) for partition in range(count)]


def row_of(topic: str, partition: int, **others: Any) -> dict[str, Any]:
    """One topic partition, its figures told by its number."""
    kind = partition % 100
    landed, merged, cleaned, tail = (partition * 7919) % 97 * 40_000, kind * 90_000, kind * 300_000, 40_000_000
    if 3 <= kind < 13:
        landed += 70_000_000
    sizes = {"l0": (landed, 11), "l1": (merged, 2), "l2": (cleaned, 1), "l3": (tail, 3)}
    dirty = (landed + merged + cleaned) / (landed + merged + cleaned + tail)
    row: dict[str, Any] = dict.fromkeys(COLUMNS.names, 0) | {
        "name": f"{topic}-{partition}",
        "topic": topic,
        "partition": partition,
        "condition": "idle",
        "dirty_ratio": dirty,
        "lag_ms": kind * MINUTE if kind else None,
        "cleanable_bytes": landed + merged,
        "first_dirty_offset": partition * 1000,
        "due_in_ms": None,
        "retained": None,
        "due": [],
        "in_the_way": [],
        "waiting": [],
    }
    for level, (size, segments) in sizes.items():
        filled = segments if size else 0
        row |= {f"{level}_bytes": size, f"{level}_segments": filled, f"{level}_records": size // 150}
    for what in ("bytes", "segments", "records"):
        row[what] = sum(row[f"{level}_{what}"] for level in sizes)
    if kind < 3:
        row |= {"condition": "uncleanable", "in_the_way": [ROW_DELETES.format(partition)]}
    elif kind < 13:
        row |= {"condition": "due", "due": [f"full: dirty ratio {dirty:.3f} > 0.5"], "due_in_ms": 0}
    elif kind < 18:
        row |= {"condition": "waiting", "waiting": [YOUNG]}
    elif kind == 18:
        row |= {"condition": "refused", "quarantined": 12, "in_the_way": [REFUSED]}
    return row | others


def verdict_of(number: int, table: str = "shop.orders", **others: Any) -> LaneVerdict:
    """The verdict on the plan of that number; every seventh failed."""
    facts: dict[str, Any] = {
        "table": table,
        "run_name": f"{number:016x}-0badcafe",
        "validation": f"{number:08x}-0badcafe",
        "plan": f"{number:016x}",
        "topic_partition": f"orders-{number}",
        "lane": "full",
        "passed": number % 7 != 3,
        "at_ms": TAKEN - number * MINUTE,
        "as_of_ms": TAKEN - number // 5 * HOUR,
        "records_in": 90_000 + number,
        "records_out": 31_000,
        "failures": () if number % 7 != 3 else ("2 newer records are missing, 1 of them a tombstone.",),
    }
    return LaneVerdict(**facts | others)


def write_overview(
    home: Path, table: str = "shop.orders", rows: list[dict[str, Any]] | None = None, **facts: Any
) -> Path:
    """Write the status of ``table`` with ``rows``; ``facts`` override those of its summary and its details."""
    rows = rows_of(300) if rows is None else rows
    counted = dict.fromkeys(("uncleanable", "refused", "due", "waiting", "idle"), 0)
    for row in rows:
        counted[row["condition"]] += 1
    publications = tuple(publication_of(number) for number in range(8))
    verdicts = tuple(verdict_of(number, table) for number in range(40))
    summary = {
        "table": table,
        "snapshot_id": 2652639534576512999,
        "taken_ms": TAKEN,
        "topic_partitions": len(rows),
        "levels": tuple(
            Level(**{what: sum(row[f"l{level}_{what}"] for row in rows) for what in ("segments", "records", "bytes")})
            for level in range(4)
        ),
        "conditions": counted,
        "max_dirty_ratio": max((row["dirty_ratio"] for row in rows), default=0.0),
        "max_lag_ms": 99 * MINUTE,
        "quarantined_records": sum(row["quarantined"] for row in rows),
        "tombstones": {"known": 120, "stamped": 40, "due": 4, "overdue": 0, "oldest_ms": TAKEN},
        "landed_bytes": 91_000_000_000,
        "written_bytes": 139_000_000_000,
        "saved_bytes": 62_000_000_000,
        "cleaned_bytes": 60_000_000_000,
        "core_ms": 5 * HOUR,
        "since_ms": TAKEN - 30 * 24 * HOUR,
        "space": SPACE.model_copy(update={"main_bytes": sum(row["bytes"] for row in rows)}),
        "last_publication": publications[0],
        "last_verdict": verdicts[0],
    }
    details = {
        "publications": publications,
        "verdicts": verdicts,
        "quarantine": tuple(
            Quarantined(
                topic_partition=row["name"],
                reason="null key",
                job="38c89567529d45fc",
                records=row["quarantined"],
                bytes=row["quarantined"] * 900,
                base_offset=row["first_dirty_offset"],
                last_offset=row["first_dirty_offset"] + 400,
            )
            for row in rows
            if row["quarantined"]
        )[:20],
        "topics": tuple(
            topic_of(topic, main_bytes=sum(row["bytes"] for row in rows if row["topic"] == topic))
            for topic in dict.fromkeys(row["topic"] for row in rows)
        ),
        "strays": (),
        "thresholds": ("merge.segments = 32, as in WarpStream",),
        "doubts": ("orders: max.compaction.lag.ms 600000 can't be met at what lands now: merge and full take 25 min",),
    }
    status = Status.of(
        home,
        Summary.model_validate(summary | {name: value for name, value in facts.items() if name in summary}),
        Details.model_validate(details | {name: value for name, value in facts.items() if name in details}),
        pa.Table.from_pylist([row | {"levels": levels_of(row)} for row in rows], schema=COLUMNS),
    )
    return write(status)


def topic_of(topic: str, **others: Any) -> TopicSpace:
    """The space of one topic."""
    figures: dict[str, Any] = SPACE.model_dump(include=set(TopicSpace.model_fields) - {"topic"})
    return TopicSpace(topic=topic, **figures | others)


def levels_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The levels of a topic partition as a status holds them, from figures such as ``l0_bytes``."""
    sizes = ("segments", "records", "bytes")
    return [{"level": level} | {what: row[f"l{level}_{what}"] for what in sizes} for level in range(4)]


def publication_of(number: int) -> LaneCommit:
    """A commit that is ``number`` hours old."""
    several = number % 3 == 1
    return LaneCommit(
        snapshot_id=1809724136472545229 - number,
        at_ms=TAKEN - number * HOUR,
        lane=("full", "idle", "merge", "tier")[number % 4],
        what="256 topic partitions" if several else f"orders-{number}",
        reason=None if several else "dirty ratio 0.664 > 0.5",
        segments_in=4_120,
        segments_out=256,
        records_in=9_100_000,
        records_out=4_870_000,
        bytes_in=1_420_000_000,
        bytes_out=830_000_000,
        tombstones_removed=12_400,
        quarantined=12 * (number % 2),
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
