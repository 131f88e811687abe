"""The record counts of a plan, and of a job: every input record is written, or counted under a reason why not (C24)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import RefusedError
from pipeline.history.properties import SUMMARY_PREFIX


class RecordCounts(BaseModel):
    """Records, bytes and segments that a plan read and wrote; published in the snapshot summary.

    ``records_in`` counts the records of the input segments as readers saw them and the ``restored`` ones: tombstones
    that an earlier cleaning removed and that return because an older record of their key arrived. ``deleted`` counts
    the records beside them that other writers' row-level deletes hid (C27): these stay behind with their segments.
    ``erased`` counts records of keys that were erased on request (C30), and ``records_in`` with them tombstones that
    had been removed before. ``superseded`` includes the ``repeated`` records, copies of a record written more than
    once. ``aborted`` counts records of aborted transactions, ``markers_removed`` the markers of transactions without
    remaining records (C10). Segments ``in_place`` stayed in the table because the plan changes nothing in them: they
    count neither as read nor as written. Bytes are file sizes. Lanes that hide records leave all segments in place:
    ``records_in`` are the records that readers saw in them, and ``bytes_out`` those of the delete files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    records_in: int = Field(ge=0)
    records_out: int = Field(ge=0)
    superseded: int = Field(ge=0)
    tombstones_removed: int = Field(ge=0)
    expired: int = Field(default=0, ge=0)
    quarantined: int = Field(ge=0)
    aborted: int = Field(default=0, ge=0)
    markers_removed: int = Field(default=0, ge=0)
    erased: int = Field(default=0, ge=0)
    repeated: int = Field(default=0, ge=0)
    restored: int = Field(default=0, ge=0)
    deleted: int = Field(default=0, ge=0)
    bytes_in: int = Field(ge=0)
    bytes_out: int = Field(ge=0)
    segments_in: int = Field(ge=0)
    segments_out: int = Field(ge=0)
    records_in_place: int = Field(default=0, ge=0)
    bytes_in_place: int = Field(default=0, ge=0)
    segments_in_place: int = Field(default=0, ge=0)

    @classmethod
    def total(cls, counts: Iterable["RecordCounts"]) -> Self:
        """Sum of the record counts of several plans."""
        sums: Counter[str] = Counter(dict.fromkeys(cls.model_fields, 0))
        for one in counts:
            sums.update(one.model_dump())
        return cls.model_validate(sums)

    def check(self, subject: str) -> Self:
        """Return self when the counts add up; RefusedError naming ``subject`` when they do not."""
        terms = {
            "out": self.records_out,
            "superseded": self.superseded,
            "tombstones removed": self.tombstones_removed,
            "expired": self.expired,
            "quarantined": self.quarantined,
            "of aborted transactions": self.aborted,
            "transaction markers removed": self.markers_removed,
            "erased": self.erased,
        }
        total = sum(terms.values())
        if total != self.records_in:
            figures = " + ".join(f"{count} {name}" for name, count in terms.items())
            raise RefusedError(
                f"{subject}: {self.records_in} records in, but {figures} = {total}; "
                f"allowed: records in = {' + '.join(terms)}"
            )
        return self

    @classmethod
    def of_summary(cls, properties: Mapping[str, str]) -> Self:
        """Parse the counts from ``summary``; pydantic's ValidationError when they are missing or wrong."""
        return cls.model_validate(
            {name: properties[_key(name)] for name in cls.model_fields if _key(name) in properties}
        )

    def summary(self) -> dict[str, str]:
        """The counts as properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {_key(name): str(value) for name, value in self.model_dump().items()}


def _key(name: str) -> str:
    return f"{SUMMARY_PREFIX}{name.replace('_', '-')}"
