"""Pass 1: the newest record of every key, from key and offset columns alone (C2, C6).

Keys are compared exactly, here and only here; pass 2 knows records by their place.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from pipeline.compact.bitmap import bitmaps, merged
from pipeline.compact.transactions import ABORTED, CONTROL
from pipeline.compact.working import KEY, PLAN, POSITION, WAS_BURIED

SURVIVES = "_firn_survives"
"""The newest record of its key among those that were grouped."""
SUPERSEDES = "_firn_supersedes"
"""An older record of its key is among the inputs."""
LOSES = "_firn_loses"
"""A record of the tail whose key the head has."""
FILE = "_firn_file"

_NEWEST, _OLDEST, _BURIED = "_firn_newest", "_firn_oldest", "_firn_buried"

BROADCAST_BYTES = 128 * 1024 * 1024
"""Keys of the head up to so many bytes go to the tail; more than that, and both sides are shuffled, without values."""
_BYTES_PER_KEY = 64
LOOKED_UP = 1_000
"""So few keys are looked up: Iceberg skips files, row groups and pages by bounds, dictionaries and bloom filters."""


def newest_per_key(records: DataFrame, buried_gap: int) -> DataFrame:
    """One row per key of each plan: PLAN, KEY, the POSITION of its newest record, whether that SUPERSEDES an older one.

    A removed tombstone counts only where a record of its key is in the table again, and only if it is newer than all of
    them; its position is ``buried_gap`` above that of a record with its offset.
    """
    keyed = records.where(F.col(KEY).isNotNull() & ~F.col(CONTROL) & ~F.col(ABORTED))
    if not buried_gap:
        return (
            keyed.groupBy(PLAN, KEY)
            .agg(F.max(POSITION).alias(_NEWEST), F.min(POSITION).alias(_OLDEST))
            .select(PLAN, KEY, F.col(_NEWEST).alias(POSITION), (F.col(_OLDEST) < F.col(_NEWEST)).alias(SUPERSEDES))
        )
    present = F.when(~F.col(WAS_BURIED), F.col(POSITION))
    buried = F.when(F.col(WAS_BURIED), F.col(POSITION) - buried_gap)
    newest = F.greatest(_NEWEST, _BURIED)
    restored = F.coalesce(F.col(_BURIED) > F.col(_NEWEST), F.lit(False))
    return (
        keyed.groupBy(PLAN, KEY)
        .agg(F.max(present).alias(_NEWEST), F.min(present).alias(_OLDEST), F.max(buried).alias(_BURIED))
        .where(F.col(_NEWEST).isNotNull())
        .select(
            PLAN,
            KEY,
            (newest + F.when(restored, buried_gap).otherwise(0)).alias(POSITION),
            (F.col(_OLDEST) < newest).alias(SUPERSEDES),
        )
    )


def survivors(newest: DataFrame) -> DataFrame:
    """The words of ``newest_per_key``."""
    return bitmaps(newest, F.col(POSITION), {SURVIVES: F.lit(True), SUPERSEDES: F.col(SUPERSEDES)})


def losers(tail: DataFrame, newest: DataFrame) -> DataFrame:
    """The records of ``tail`` (PLAN, KEY, POSITION, FILE) whose key is among ``newest``: FILE, their POSITION, and that
    of the newest record of the key.

    Every record of the tail is older than every record of the head, so that nothing else has to be compared.
    """
    keys = newest.select(PLAN, KEY, F.col(POSITION).alias(_NEWEST))
    found = _extent(keys)
    if found.size <= BROADCAST_BYTES:
        keys = F.broadcast(keys)
    looked_at = tail.select(PLAN, KEY, POSITION, FILE)
    if found.possible is not None:
        looked_at = looked_at.where(found.possible)
    return looked_at.join(keys, on=[PLAN, KEY]).select(FILE, POSITION, _NEWEST)


def with_losers(words: DataFrame, lost: DataFrame) -> DataFrame:
    """The words of the head's survivors and of what ``losers`` found in the tail."""
    of_tail = bitmaps(lost, F.col(POSITION), {LOSES: F.lit(True)})
    of_head = bitmaps(lost, F.col(_NEWEST), {SUPERSEDES: F.lit(True)})
    return merged(words.unionByName(of_head, allowMissingColumns=True).unionByName(of_tail, allowMissingColumns=True))


@dataclass(frozen=True)
class _Extent:
    """About how many bytes some keys take as a broadcast, and which keys can be among them, as far as files can tell
    (None: nothing that a file could be told by)."""

    size: int
    possible: Column | None


def _extent(keys: DataFrame) -> _Extent:
    kind = keys.schema[KEY].dataType
    # A key of several columns: Iceberg keeps bounds of each, and nothing of the struct that they make here.
    whole = not isinstance(kind, StructType)
    few = [row[KEY] for row in keys.select(KEY).limit(LOOKED_UP + 1).collect()]
    if len(few) <= LOOKED_UP:
        size = sum(len(key) for key in few if isinstance(key, bytearray | str))
        return _Extent(size + len(few) * _BYTES_PER_KEY, F.col(KEY).isin(few) if whole else None)
    length: Column = F.octet_length(KEY) if isinstance(kind, BinaryType | StringType) else F.lit(0)
    bounds = (F.min(KEY).alias("lowest"), F.max(KEY).alias("highest")) if whole else ()
    (row,) = keys.agg(F.count(F.lit(1)).alias("count"), F.sum(length).alias("bytes"), *bounds).collect()
    size = (row["bytes"] or 0) + row["count"] * _BYTES_PER_KEY
    return _Extent(size, F.col(KEY).between(row["lowest"], row["highest"]) if whole else None)
