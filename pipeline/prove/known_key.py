"""A key that whoever verifies brings: what can't hold it is not read, by bounds and bloom filters of the files (C30).

The search for a certificate knows digests alone, which say nothing about bounds or bloom filters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from pipeline.erase.digests import key_bytes
from pipeline.erase.keys import named_values
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import OpenFile
from pipeline.prove.bloom_filters import excluding


@dataclass(frozen=True)
class KnownKey:
    """A key: ``encoded`` as `key_bytes` does, and the ``values`` of its columns by the table's names."""

    encoded: bytes
    values: Mapping[str, Any]

    @classmethod
    def named(cls, table: Table, columns: Columns, key: Sequence[bytes]) -> Self:
        """The key of ``table`` that a person names by its columns' values; raises RefusedError as `named_values`."""
        batch = named_values(table, columns, [key])
        return cls(key_bytes(batch, columns.key)[0].as_py(), batch.to_pylist()[0])

    def among(self, keys: pa.Array) -> pa.Array:
        """``keys`` (`key_bytes`), with NULL in place of all others."""
        return pc.if_else(pc.equal(keys, pa.scalar(self.encoded, keys.type)), keys, None)

    def row_groups(self, file: OpenFile) -> list[int]:
        """The row groups of ``file`` that may hold the key, by what its footer and its bloom filters say."""
        groups = set(range(file.file.metadata.num_row_groups))
        for column, value in self.values.items():
            groups = {one for one in groups if _is_within(file.bounds(column, one), value)}
        for column, value in self.values.items():
            groups -= excluding(file, column, value, groups)
        return sorted(groups)


def _is_within(bounds: tuple[Any, Any] | None, value: Any) -> bool:
    """False when ``value`` is outside the ``bounds``. Only bytes, text and whole numbers are compared: a file may
    keep other types in another form."""
    if bounds is None or any(type(one) is not type(value) for one in bounds) or type(value) not in (bytes, str, int):
        return True
    low, high = bounds
    return bool(low <= value <= high)
