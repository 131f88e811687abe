"""Bytes that only a table's history holds, and how many of them expiring snapshots would free now."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from pipeline.lake.manifests import READERS
from pipeline.space.cache import load, store
from pipeline.space.differences import EVERYTHING, NOTHING, Difference, differences
from pipeline.space.files import SCHEMA, Reading, Topics, unreadable

SNAPSHOTS_AT_ONCE: Final = 50
MANIFEST_BYTES_AT_ONCE: Final = 16 << 20
"""Limits of what one call reads, so that a long history delays nobody; the next call reads on."""


@dataclass(frozen=True)
class HistorySpace:
    """Sizes of data and delete files that main and Firn's side branches no longer have, but an older snapshot has."""

    held_bytes: int
    held_is_exact: bool
    """False: about so many; sizes are missing from summaries, or gaps in the history leave it open."""
    expirable_bytes: int
    """The part of ``held_bytes`` that only snapshots reach which expiry would remove now."""
    expirable_is_exact: bool
    """False: about so many, and rather more: what a tag or a branch may share counts as staying."""
    by_topic: Mapping[str, tuple[int, int]]
    """``held_bytes`` and ``expirable_bytes`` of each topic, of those differences that were read."""
    unread: int
    """Number of commits whose files are not told apart by topic yet."""


def history_space(table: Table, identifier: str, retained: Collection[int], cache: Path | None) -> HistorySpace:
    """The space of the history of ``table``; ``retained`` are the snapshots that expiry would keep now.

    Totals are from snapshot summaries. What these do not tell is from manifests: topics, files that a tag keeps, files
    of a tag whose neighbours have expired. They are read a limited number at a time and kept below the folder ``cache``
    (None: nowhere).
    """
    history = differences(table, retained)
    steps = history.all
    rows = _counted(_rows(table, identifier, steps, cache), steps)
    places = pc.index_in(rows["name"].combine_chunks(), pa.array([one.name for one in steps], pa.string())).to_numpy()
    stays = np.array([one.stays for one in steps], np.int64)
    files = pa.table(
        {
            "topic": rows["topic"],
            "held": rows["bytes"],
            "freed": pc.if_else(pa.array(rows["added"].to_numpy() > stays[places]), rows["bytes"], 0),
        }
    )
    told = set(places.tolist())
    unread = [one for place, one in enumerate(steps) if place not in told]
    sums = files.group_by("topic").aggregate([("held", "sum"), ("freed", "sum")]).to_pylist()
    return HistorySpace(
        held_bytes=_sum(files["held"]) + sum(one.bytes or 0 for one in unread),
        held_is_exact=history.is_exact and all(one.bytes is not None for one in unread),
        expirable_bytes=_sum(files["freed"]) + sum(one.bytes or 0 for one in unread if one.stays == NOTHING),
        expirable_is_exact=history.is_exact and history.stays_is_exact and all(_tells_expirable(one) for one in unread),
        by_topic={one["topic"]: (one["held_sum"], one["freed_sum"]) for one in sums if one["topic"] is not None},
        unread=len(unread),
    )


def _counted(rows: pa.Table, steps: Sequence[Difference]) -> pa.Table:
    """``rows`` without the files that another difference counts; a difference that has none left counts as read."""
    for one in steps:
        if one.except_by:
            elsewhere = pc.is_in(rows["added"], pa.array(sorted(one.except_by), pa.int64()))
            own = pc.and_(pc.equal(rows["name"], one.name), elsewhere)
            rows = rows.set_column(rows.schema.get_field_index("bytes"), "bytes", pc.if_else(own, 0, rows["bytes"]))
    return rows.combine_chunks()


def _sum(sizes: pa.ChunkedArray) -> int:
    return pc.sum(sizes).as_py() or 0


def _tells_expirable(unread: Difference) -> bool:
    return unread.stays == EVERYTHING or (unread.stays == NOTHING and unread.bytes is not None)


def _rows(table: Table, identifier: str, steps: Sequence[Difference], cache: Path | None) -> pa.Table:
    """The files of the differences that are known by now."""
    path = cache / f"{table.metadata.table_uuid}.arrow" if cache else None
    known = load(path, [one.name for one in steps]) if path else SCHEMA.empty_table()
    tried = set(known["name"].unique().to_pylist())
    missing = [one for one in steps if one.name not in tried]
    # First what no summary tells, then the newest.
    wanted = sorted(missing, key=lambda one: (one.bytes is not None, -one.held.timestamp_ms))[:SNAPSHOTS_AT_ONCE]
    fresh = list(_read(table, Topics(table, identifier), wanted)) if wanted else []
    rows = pa.concat_tables([known, *fresh])
    if path and fresh:
        store(path, rows)
    return rows.filter(pc.is_valid(rows["bytes"]))


def _read(table: Table, topics: Topics, wanted: Sequence[Difference]) -> Iterator[pa.Table]:
    """The files of the ``wanted`` differences, or of the first ones: as many as the limit of bytes allows."""
    with ThreadPoolExecutor(READERS) as readers:
        planned = list(readers.map(partial(_planned, table), wanted))
        yield from (unreadable(one) for one, reading in zip(wanted, planned, strict=True) if reading is None)
        readings = [reading for reading in planned if reading]
        until = accumulate(reading.length for reading in readings)
        fitting = [one for one, size in zip(readings, until, strict=True) if size <= MANIFEST_BYTES_AT_ONCE]
        yield from readers.map(partial(_files, table, topics), fitting)


def _planned(table: Table, difference: Difference) -> Reading | None:
    """The manifests to read; None where they are gone, or more than may be read at once."""
    try:
        reading = Reading.of(table, difference)
    except FileNotFoundError:
        return None
    return reading if reading.length <= MANIFEST_BYTES_AT_ONCE else None


def _files(table: Table, topics: Topics, reading: Reading) -> pa.Table:
    try:
        return reading.rows(table, topics)
    except FileNotFoundError:
        return unreadable(reading.difference)
