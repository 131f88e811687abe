"""Records as writers append them and readers see them."""

from typing import NamedTuple


class Record(NamedTuple):
    """One record of the topic; ``value`` None is a tombstone."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int

    @property
    def place(self) -> tuple[int, int]:
        """Partition and offset."""
        return self.partition, self.offset
