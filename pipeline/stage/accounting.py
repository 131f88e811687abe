"""The books of one plan: every record that goes in comes out or is accounted for (C24)."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import RefusedError

SUMMARY_PREFIX = "firn."


class Accounting(BaseModel):
    """Counts of records, bytes and segments of one plan; published in the snapshot summary."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    records_in: int = Field(ge=0)
    records_out: int = Field(ge=0)
    superseded: int = Field(ge=0)
    tombstones_removed: int = Field(ge=0)
    expired: int = Field(default=0, ge=0)
    quarantined: int = Field(ge=0)
    bytes_in: int = Field(ge=0)
    bytes_out: int = Field(ge=0)
    segments_in: int = Field(ge=0)
    segments_out: int = Field(ge=0)

    def check(self, subject: str) -> Self:
        """Self when the books balance; RefusedError naming ``subject`` when they do not."""
        explained = self.records_out + self.superseded + self.tombstones_removed + self.expired + self.quarantined
        if explained != self.records_in:
            raise RefusedError(
                f"{subject}: {self.records_in} records went in, {explained} are accounted for ({self.records_out} out, "
                f"{self.superseded} superseded, {self.tombstones_removed} tombstones removed, {self.expired} expired, "
                f"{self.quarantined} quarantined); allowed: equal"
            )
        return self

    def summary(self) -> dict[str, str]:
        """As properties of an Iceberg snapshot summary: ``firn.records-in`` and so on."""
        return {f"{SUMMARY_PREFIX}{name.replace('_', '-')}": str(value) for name, value in self.model_dump().items()}
