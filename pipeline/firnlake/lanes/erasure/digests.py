"""Digests of keys, by which requests name the keys to erase, and the search for such keys among records (C30)."""

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.keys import Flags, bytes_of, joined
from firnlake.lanes.erasure.reads import Read
from firnlake.lanes.erasure.requests import Request
from firnlake.table.columns import ColumnRoles
from firnlake.table.key_values import key_value
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

_BLOCK: Final = 64
"""Number of bytes in a block of SHA-256, to which HMAC pads its key (RFC 2104)."""


def key_bytes(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """The bytes of each record's key; NULL if the record has no key, or one of several key columns is NULL (C5).

    The bytes are those of the only key column; several columns are joined, each preceded by its length. An int has the
    bytes of a long, because Iceberg can promote an int column to long, and the keys must stay the same.
    """
    parts = [_promoted(batch.column(name)) for name in columns]
    return bytes_of(parts[0]) if len(parts) == 1 else joined(parts)


def _promoted(part: pa.Array) -> pa.Array:
    return part.cast(pa.int64()) if pa.types.is_int32(part.type) else part


def digests_of(keys: pa.Array, table_uuid: str) -> list[bytes | None]:
    """The digests, 32 bytes each, of ``keys`` (`key_bytes`): HMAC-SHA256 under the table's UUID; None for NULL.

    Two tables never have the same digest of a key. Whoever can read the table can test a guess of a key.
    """
    # `hmac.digest` would release the interpreter's lock for every key, so the threads would wait for each other.
    secret = uuid.UUID(table_uuid).bytes
    inner, outer = (bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0")) for pad in (0x36, 0x5C))
    sha256 = hashlib.sha256
    return [None if key is None else sha256(outer + sha256(inner + key).digest()).digest() for key in keys.to_pylist()]


def digest_of(key: bytes, table_uuid: str) -> str:
    """The digest of one key (`named_keys`), in hexadecimal."""
    (digest,) = digests_of(pa.array([key], pa.large_binary()), table_uuid)
    return (digest or b"").hex()


def named_keys(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The bytes (`key_bytes`) of ``keys``, which are named as for `named_values`."""
    named: list[bytes] = key_bytes(named_values(table, columns, keys), columns.key).to_pylist()
    return named


def named_values(table: Table, columns: ColumnRoles, keys: Sequence[Sequence[bytes]]) -> pa.RecordBatch:
    """The key columns of ``keys``, as a batch with one row for each key.

    A key is named by the values of its columns: the bytes of a binary value, or the UTF-8 text of any other value.
    Raises RefusedError for a key that no record of ``table`` can have.
    """
    names = columns.key
    for key in keys:
        if len(key) != len(names):
            raise RefusedError(
                f"the key has {count(len(key), 'part')}; allowed: {len(names)}, one for each of {', '.join(names)}"
            )
    schema = DataFiles.of(table).arrow_schema(names)
    fields = [table.schema().find_field(name) for name in names]
    parts = [
        pa.array([key_value(key[index], field).value for key in keys], schema.field(index).type)
        for index, field in enumerate(fields)
    ]
    return pa.RecordBatch.from_arrays(parts, schema=schema)


class RequestedKeys:
    """The keys of some requests of one table. Tasks contain it, so it is picklable."""

    def __init__(self, table_uuid: str, requests: Sequence[Request]) -> None:
        self._table_uuid = table_uuid
        self._ends = [(request.topic, dict(request.log_ends)) for request in requests]
        self._named: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
        for index, request in enumerate(requests):
            for position, digest in enumerate(request.digests):
                self._named[bytes.fromhex(digest)].append((index, position))

    def reads(self, path: str, size: int, *, searched: bool = False) -> list[Read]:
        """For each request, what is found in the file at ``path``, of ``size`` bytes, before it is read."""
        return [Read(path, size, searched) for _ in self._ends]

    def concern(self, owner: TopicPartition | None) -> bool:
        """True when a request may cover records of ``owner``; None stands for any topic partition."""
        return owner is None or any(topic == owner.topic for topic, _ in self._ends)

    def count(
        self,
        reads: Sequence[Read],
        keys: pa.Array,
        offsets: NDArray[np.int64] | None,
        owners: Sequence[TopicPartition | None],
    ) -> Flags:
        """Count the records of requested keys in ``reads``; returns flags of those that some request covers.

        ``keys`` (`key_bytes`) and ``offsets`` are those of the records; without ``offsets``, each record of a requested
        key is covered. ``owners`` has the topic partition of each record, or a single one for all of them.
        """
        covered = np.zeros(len(keys), np.bool_)
        encoded = pc.dictionary_encode(keys)
        digests = digests_of(encoded.dictionary, self._table_uuid)
        named = {code: self._named[digest] for code, digest in enumerate(digests) if digest in self._named}
        if not named:
            return covered
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        (rows,) = np.nonzero(np.isin(codes, list(named)))
        for row, code in zip(rows.tolist(), codes[rows].tolist(), strict=True):
            owner = owners[0] if len(owners) == 1 else owners[row]
            offset = None if offsets is None else int(offsets[row])
            for index, position in named[code]:
                topic, ends = self._ends[index]
                if owner is None or owner.topic == topic:
                    end = None if owner is None else ends.get(owner.partition, 0)
                    covered[row] |= reads[index].add(position, offset, end)
        return covered
