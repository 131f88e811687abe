"""The books of one plan: every record that goes in comes out or is accounted for (C24)."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import RefusedError

SUMMARY_PREFIX = "firn."


class Accounting(BaseModel):
    """Counts of records, bytes and segments of one plan; published in the snapshot summary.

    ``records_in`` are those of the input segments and the ``restored`` ones: tombstones removed earlier that come back
    because an older record of their key turned up. ``superseded`` includes the ``repeated`` ones, copies of a record
    that was written more than once. ``aborted`` are records of aborted transactions, ``markers_removed`` the markers
    of transactions that nothing is left of (C10). What is `left` was looked at and stays where it is: it counts neither
    as in nor as out.
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
    segments_left: int = Field(default=0, ge=0)
    records_left: int = Field(default=0, ge=0)
    bytes_left: int = Field(default=0, ge=0)

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

    def summary(self) -> dict[str, str]:
        """As properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {f"{SUMMARY_PREFIX}{name.replace('_', '-')}": str(value) for name, value in self.model_dump().items()}
