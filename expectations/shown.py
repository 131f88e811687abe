"""What samples of offending records show of them: no key, a digest of each key, or keys and values as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType, TimestampNTZType, TimestampType

from expectations.digests import DIGEST, DIGITS
from expectations.wording import KEY_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column

Shown = Literal["none", "keys", "full"]
"""`none`: no samples at all; `keys`: keys as digests, no values; `full`: keys and values."""


def shown_key(key: Column, kind: DataType, shown: Shown) -> Column:
    """What a sample shows of `key`, which is of `kind`: its `digest`, or as much of it as can matter; NULL of NULL."""
    if shown == "full":
        return F.substring(key if isinstance(kind, BinaryType) else key.cast("string"), 1, KEY_BYTES)
    return F.concat(F.lit(DIGEST), F.substring(_sha256(key, kind), 1, DIGITS))


def _sha256(value: Column, kind: DataType) -> Column:
    match kind:
        case StructType():
            parts = [_sha256(value[field.name], field.dataType) for field in kind.fields]
            return F.sha2(F.concat(*parts).cast("binary"), 256)
        case BinaryType():
            return F.sha2(value, 256)
        case TimestampType() | TimestampNTZType():
            return F.sha2(F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS").cast("binary"), 256)
        case _:
            return F.sha2(value.cast("string").cast("binary"), 256)
