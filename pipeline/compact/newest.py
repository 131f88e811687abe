"""Pass 1: the newest record of every key, from key and offset columns alone (C2, C6).

Keys are compared exactly, here and only here; pass 2 knows records by their place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructType

from pipeline.compact.bitmap import bits, together
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
    return together([_survivors(newest)])


@dataclass(frozen=True)
class Extent:
    """How many keys there are, about how many bytes they take as a broadcast, and which can be among them, as far as
    files can tell (None: nothing that a file could be told by)."""

    count: int
    size: int
    possible: Column | None


def extent(newest: DataFrame) -> Extent:
    """The extent of the keys of ``newest``."""
    kind = newest.schema[KEY].dataType
    length: Column = F.octet_length(KEY) if isinstance(kind, BinaryType | StringType) else F.lit(0)
    # A key of several columns: Iceberg keeps bounds of each, and nothing of the struct that they make here.
    whole = not isinstance(kind, StructType)
    bounds = (F.min(KEY).alias("lowest"), F.max(KEY).alias("highest")) if whole else ()
    (row,) = newest.agg(F.count(F.lit(1)).alias("count"), F.sum(length).alias("bytes"), *bounds).collect()
    count: int = row["count"]
    possible = None
    if whole and count > LOOKED_UP:
        possible = F.col(KEY).between(row["lowest"], row["highest"])
    elif whole:
        possible = F.col(KEY).isin([found[KEY] for found in newest.select(KEY).collect()])
    return Extent(count, (row["bytes"] or 0) + count * _BYTES_PER_KEY, possible)


def losers(tail: DataFrame, newest: DataFrame, among: Extent) -> DataFrame:
    """The records of ``tail`` (PLAN, KEY, POSITION, FILE) whose key is among ``newest``: FILE, their POSITION, and that
    of the newest record of the key.

    Every record of the tail is older than every record of the head, so that nothing else has to be compared.
    """
    keys = newest.select(PLAN, KEY, F.col(POSITION).alias(_NEWEST))
    if among.size <= BROADCAST_BYTES:
        keys = F.broadcast(keys)
    looked_at = tail.select(PLAN, KEY, POSITION, FILE)
    if among.possible is not None:
        looked_at = looked_at.where(among.possible)
    return looked_at.join(keys, on=[PLAN, KEY]).select(FILE, POSITION, _NEWEST)


def with_losers(newest: DataFrame, lost: DataFrame) -> DataFrame:
    """The words of the head's survivors and of what ``losers`` found in the tail."""
    of_tail = bits(lost, F.col(POSITION), {LOSES: F.lit(True)})
    of_head = bits(lost, F.col(_NEWEST), {SUPERSEDES: F.lit(True)})
    return together([_survivors(newest), of_head, of_tail])


def counting(words: DataFrame, observation: Observation) -> DataFrame:
    """``words``, whose bits ``observation`` counts."""
    names = [name for name in (SURVIVES, LOSES) if name in words.columns]
    return words.observe(observation, *(F.sum(F.bit_count(name)).alias(name) for name in names))


def survivors_of(observed: Mapping[str, int | None]) -> int:
    """How many records survive by what ``counting`` observed, less those of the tail that lose."""
    return (observed[SURVIVES] or 0) - (observed.get(LOSES) or 0)


def _survivors(newest: DataFrame) -> DataFrame:
    return bits(newest, F.col(POSITION), {SURVIVES: F.lit(True), SUPERSEDES: F.col(SUPERSEDES)})
