"""Sets of records as bitmaps: one bit per offset, 64 neighbours in a word.

What pass 1 finds out about records goes to pass 2 this way. Offsets of a log are nearly dense, so a verdict costs about
a bit, where a row per record would cost dozens of bytes: fifty million records fit a broadcast of some megabytes.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WORD = "_firn_word"


def bitmaps(marked: DataFrame, position: Column, marks: Mapping[str, Column]) -> DataFrame:
    """One row per word of 64 positions, and for each of ``marks`` a bigint of the positions for which it is true."""
    return together([bits(marked, position, marks)])


def bits(marked: DataFrame, position: Column, marks: Mapping[str, Column]) -> DataFrame:
    """For every row of ``marked`` its word, and in it the bit of its position for each of ``marks`` that is true."""
    found = {name: F.when(mark, bit(position)) for name, mark in marks.items()}
    return marked.select(F.shiftright(position, 6).alias(WORD), *(bit.alias(name) for name, bit in found.items()))


def together(parts: Sequence[DataFrame]) -> DataFrame:
    """One row per word of ``parts``, which are ``bits``: the union of their bits."""
    rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    names = [name for name in rows.columns if name != WORD]
    return rows.groupBy(WORD).agg(*(F.bit_or(name).alias(name) for name in names))


def has(mark: str, position: Column) -> Column:
    """Whether the bit of ``position`` is set in column ``mark`` of its word; false where there is no such word."""
    return F.coalesce(F.col(mark).bitwiseAND(bit(position)) != 0, F.lit(False))


def with_words(records: DataFrame, position: Column, words: DataFrame) -> DataFrame:
    """``records`` beside the words of their positions; the words are broadcast, the records stay where they are."""
    return records.withColumn(WORD, F.shiftright(position, 6)).join(F.broadcast(words), on=WORD, how="left").drop(WORD)


def bit(position: Column) -> Column:
    """The bit of ``position`` in its word, a bigint."""
    return F.call_function("shiftleft", F.lit(1).cast("bigint"), position.bitwiseAND(63).cast("int"))
