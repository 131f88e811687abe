"""Column mapping: the roles of a table's columns, and the columns that a record is narrowed to for judging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_OF_TRANSACTIONS = ("is_control", "is_transactional", "producer_id")


@dataclass(frozen=True, slots=True)
class Reading:
    """The roles of the columns of a table of records; the defaults are those of Kafka's Spark source.

    key               the key's columns; a record with NULL in one of them has no key (C5)
    offset            the integer that orders records
    topic, partition  None: every record belongs to `topic_name`, partition 0
    tombstone         a condition in DuckDB's SQL, NULL counting as false; None: no record is a tombstone
    told_by           the columns that the condition reads
    level, delete_horizon   the two columns that a cleaning writes; it must not change any other (C1)
    transactions      True when transaction columns, if there are any, are Kafka's (C10)
    uuids             key columns whose 16 bytes are a UUID, which reports show as text
    """

    key: tuple[str, ...] = ("key",)
    offset: str = "offset"
    topic: str | None = "topic"
    partition: str | None = "partition"
    topic_name: str = ""
    tombstone: str | None = '"value" IS NULL'
    told_by: tuple[str, ...] = ("value",)
    level: str = "level"
    delete_horizon: str = "delete_horizon"
    transactions: bool = True
    uuids: tuple[str, ...] = ()

    def kept(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that C1 keeps, in order: the columns of the `Fingerprint`."""
        return tuple(name for name in columns if name not in (self.level, self.delete_horizon))

    def of_transactions(self, columns: Collection[str]) -> tuple[str, ...]:
        """The transaction columns among `columns`."""
        return tuple(name for name in _OF_TRANSACTIONS if self.transactions and name in columns)

    def narrow(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that locate a record: all that is read when a fingerprint vouches for the value."""
        named = (*self.key, self.offset, self.topic, self.partition, self.level, self.delete_horizon)
        return tuple(dict.fromkeys(name for name in (*named, *self.of_transactions(columns)) if name))
