"""Which columns of a table of records are what to the judge, and how a record is narrowed to what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_OF_TRANSACTIONS = ("is_control", "is_transactional", "producer_id")


@dataclass(frozen=True, slots=True)
class Reading:
    """The columns of a table of records; by default those of Kafka's Spark source.

    key               the key's columns; a record with NULL in one of them has no key (C5)
    offset            the integer that orders records
    topic, partition  None: every record is of `topic_name`, of partition 0
    tombstone         a condition as DuckDB's SQL, NULL counting as false; None: no record is a tombstone
    told_by           the columns that the condition looks at
    level, delete_horizon   the two columns that a cleaning writes: all others it must leave as they are (C1)
    transactions      whether columns for transactions, where there are any, are Kafka's (C10)
    uuids             those of the key's columns whose 16 bytes are a UUID, which reports show as text
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
        """The columns that C1 keeps, in order: what `Fingerprint` is to be made of."""
        return tuple(name for name in columns if name not in (self.level, self.delete_horizon))

    def of_transactions(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns for transactions among `columns`."""
        return tuple(name for name in _OF_TRANSACTIONS if self.transactions and name in columns)

    def narrow(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns that tell the place of a record: all that is read of one whose value is vouched for."""
        named = (*self.key, self.offset, self.topic, self.partition, self.level, self.delete_horizon)
        return tuple(dict.fromkeys(name for name in (*named, *self.of_transactions(columns)) if name))


KAFKAS = Reading()
