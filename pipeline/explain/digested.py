"""Find the key behind a digest in a report by reading the keys of a table, or of one topic partition.

Digests are not indexed, so this costs as much as reading the key columns. A report also names the topic partition.
"""

import re
from collections.abc import Iterator, Sequence

from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table
from pyiceberg.types import TimestamptzType

from expectations.digests import DIGEST, DIGITS, digest
from expectations.redaction import hashed_part
from pipeline.errors import RefusedError
from pipeline.explain.versions import Key
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.filters import EVERYTHING, both, equals
from pipeline.lake.topic_partition import TopicPartition
from pipeline.segments.planned import planned

_DIGEST = re.compile(rf"{DIGEST}[0-9a-f]{{{DIGITS}}}")


def is_digest(texts: Sequence[str]) -> bool:
    """True when ``texts``, which name a key, are a digest."""
    return len(texts) == 1 and texts[0].startswith(DIGEST)


def key_of_digest(lake: Lake, identifier: str, text: str, only: TopicPartition | None = None) -> Key:
    """The key of table ``identifier`` (in its current snapshot; in topic partition ``only``) with digest ``text``.

    Raises RefusedError when no key has that digest, or ``text`` is not a digest.
    """
    if not _DIGEST.fullmatch(text):
        raise RefusedError(
            f"key {text!r} is not a digest; allowed: {DIGEST} and {DIGITS} lower-case hexadecimal digits, as in "
            "reports, or text:<text> for a key that begins like this"
        )
    table = lake.table(identifier)
    columns = Columns.of(table, identifier)
    for values in _keys(table, columns, only):
        if digest([hashed_part(value) for value in values]) == text:
            return tuple(_typed(table, name, value) for name, value in zip(columns.key, values, strict=True))
    where = f"{only} of table {identifier}" if only else f"table {identifier}"
    raise RefusedError(f"no key in {where} has the digest {text}; allowed: one of the current snapshot's")


def _keys(table: Table, columns: Columns, only: TopicPartition | None) -> Iterator[tuple[object, ...]]:
    chosen = EVERYTHING
    for column, value in ((columns.topic, only and only.topic), (columns.partition, only and only.partition)):
        if column and value is not None:
            chosen = both(equals(column, value), chosen)
    # The keys of hidden records are keys, too: whose record it was is told where it is explained.
    tasks = planned(table, table.metadata.current_snapshot_id, chosen).tasks.values()
    scan = ArrowScan(table.metadata, table.io, table.schema().select(*columns.key), chosen)
    for batch in scan.to_record_batches(tasks):
        distinct = batch.select(list(columns.key))
        for row in distinct.to_pylist():
            values = tuple(row[name] for name in columns.key)
            if None not in values:
                yield values


def _typed(table: Table, name: str, value: object) -> bytes:
    """The value as bytes of the text that a person would type for it."""
    zoned = isinstance(table.schema().find_field(name).field_type, TimestamptzType)
    return hashed_part(value) + (b"+00:00" if zoned else b"")
