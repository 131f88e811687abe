"""The claims that a plan and its compaction make about their work. Everything else is measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Lane = Literal["erase", "mask", "lighten", "merge", "clean", "tier", "full"]

TAIL = 3
"""Level of the tail; everything below it is the head."""

QUARANTINED = -1
"""Level of a staged record that goes to the quarantine table, not to the topic (C5)."""

BURIED = -2
"""Level of tombstones removed from the topic: written to be kept beside it, read to come back (C9)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one plan (one lane on one topic partition), which a validation tests.

    table                 the Iceberg table, `namespace.name`
    lane                  `erase` (C30), `mask` (C28), `lighten` (C27), `merge` (C13), `clean` (C14), `tier` (C15) or
                          `full` (C16)
    plan_id               the plan's identifier
    topic, partition      the topic partition of the plan
    now_ms                the plan's clock, epoch milliseconds
    level_out             level of the records that stay in the topic; `erase`, `mask` and `lighten` keep that of each
    clean_below           tombstones below this offset are *clean* (C7); None: all are, since no segment outside
                          the inputs can hold an older offset
    log_end_offset        highest offset of the topic partition when the plan was made (C4)
    kept_from             where row-level deletes may hide the log end: the first offset that may be the highest that
                          readers see; None: the log end itself
    delete_retention_ms   `delete.retention.ms`: time that a tombstone stays after it was found clean (C8)
    segments_in/_out      data files read and written, as the plan and the stage list them
    bytes_in/_out         their sizes in bytes
    records_in            records read
    records_out           records that stay in the topic, quarantined ones not counted
    superseded            records dropped because a newer record of their key was read (C2)
    tombstones_removed    tombstones dropped because their delete horizon has passed (C9)
    quarantined           records without a key, moved to the quarantine table (C5)
    repeated              superseded records that are copies of a record written more than once
    restored              records read that are tombstones removed earlier: they came back because an older record
                          of their key was read (C9)
    transactional         True when transactional or control records may have been read (C10)
    markers               markers outside the inputs that decide transactions inside: producer, offset, committed
    deleted               records of the files read that other writers' row-level deletes hide, beside records_in (C27)
    aborted               records of aborted transactions, dropped regardless of their key (C10)
    markers_removed       markers dropped because their transaction has no records left (C10)
    erased                records dropped because their keys are to be erased (C30); removed tombstones among them
                          count as read
    erase_before          lane `erase`: records at this offset and past it stay; None: all that are requested go
    end_kept              lane `erase`: True when the log end is requested and stays nevertheless (C4)
    segments_in_place     segments of the tail that lose nothing and stay in place (C16); they count neither as
                          read nor as written
    bytes_in_place        their size in bytes
    records_in_place      their records

    The record counts must add up (C24): records_in = records_out + superseded + tombstones_removed + quarantined +
    aborted + markers_removed + erased.
    """

    table: str
    lane: Lane
    plan_id: str
    topic: str
    partition: int
    now_ms: int
    level_out: int
    clean_below: int | None
    log_end_offset: int
    delete_retention_ms: int
    segments_in: int
    segments_out: int
    bytes_in: int
    bytes_out: int
    records_in: int
    records_out: int
    superseded: int
    tombstones_removed: int
    quarantined: int
    repeated: int = 0
    restored: int = 0
    deleted: int = 0
    transactional: bool = False
    markers: tuple[tuple[int, int, bool], ...] = ()
    aborted: int = 0
    markers_removed: int = 0
    erased: int = 0
    erase_before: int | None = None
    end_kept: bool = False
    segments_in_place: int = 0
    bytes_in_place: int = 0
    records_in_place: int = 0
    kept_from: int | None = None

    @property
    def end(self) -> int:
        """From this offset on, a record goes only if a newer one of its key was read (C4)."""
        return self.log_end_offset if self.kept_from is None else self.kept_from

    def to_dict(self) -> dict[str, Any]:
        """The claim as JSON-ready names and values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Claim:
        """Restore a claim from `to_dict`. Raises TypeError for a missing or unknown name."""
        # JSON has no tuples, only lists.
        return cls(**{**fields, "markers": tuple(tuple(marker) for marker in fields.get("markers", ()))})
