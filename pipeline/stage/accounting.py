"""The books of a plan, and of a job: every record that goes in comes out or is accounted for (C24)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import RefusedError

SUMMARY_PREFIX = "firn."


class Accounting(BaseModel):
    """Counts of records, bytes and segments of one plan; published in the snapshot summary.

    ``records_in`` are those of the input segments and the ``restored`` ones: tombstones removed earlier that come back
    because an older record of their key turned up. ``superseded`` includes the ``repeated`` ones, copies of a record
    that was written more than once. ``aborted`` are records of aborted transactions, ``markers_removed`` the markers
    of transactions that nothing is left of (C10). What is ``left`` stayed in the table as it was, because the plan
    changes nothing in it: it is on neither side of the books.
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
    repeated: int = Field(default=0, ge=0)
    restored: int = Field(default=0, ge=0)
    bytes_in: int = Field(ge=0)
    bytes_out: int = Field(ge=0)
    segments_in: int = Field(ge=0)
    segments_out: int = Field(ge=0)
    records_left: int = Field(default=0, ge=0)
    bytes_left: int = Field(default=0, ge=0)
    segments_left: int = Field(default=0, ge=0)

    @classmethod
    def total(cls, books: Iterable["Accounting"]) -> Self:
        """The books of several plans as if they were one."""
        sums: Counter[str] = Counter(dict.fromkeys(cls.model_fields, 0))
        for one in books:
            sums.update(one.model_dump())
        return cls.model_validate(sums)

    def check(self, subject: str) -> Self:
        """Self when the books balance; RefusedError naming ``subject`` when they do not."""
        terms = {
            "out": self.records_out,
            "superseded": self.superseded,
            "tombstones removed": self.tombstones_removed,
            "expired": self.expired,
            "quarantined": self.quarantined,
            "of aborted transactions": self.aborted,
            "transaction markers removed": self.markers_removed,
        }
        if sum(terms.values()) != self.records_in:
            said = ", ".join(f"{count} {name}" for name, count in terms.items())
            raise RefusedError(
                f"{subject}: {self.records_in} records went in, {sum(terms.values())} are accounted for ({said}); "
                "allowed: equal"
            )
        return self

    @classmethod
    def of_summary(cls, said: Mapping[str, str]) -> Self:
        """The books back from ``summary``; figures that an older version did not know of are 0."""
        return cls.model_validate({name: said[_key(name)] for name in cls.model_fields if _key(name) in said})

    def summary(self) -> dict[str, str]:
        """As properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {_key(name): str(value) for name, value in self.model_dump().items()}


def _key(name: str) -> str:
    return f"{SUMMARY_PREFIX}{name.replace('_', '-')}"


class Books(BaseModel):
    """What a job recorded about its result, by plan id: the books, and the judge's fingerprint of what was written,
    taken as it was read (a decimal number; without one both sides are compared whole).

    A plan without books was refused: nothing of it may be published.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprints: Mapping[str, str] = Field(default_factory=dict)
    plans: Mapping[str, Accounting]
