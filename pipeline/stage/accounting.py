"""What a job recorded about its result."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from pipeline.history.record_counts import RecordCounts


class Books(BaseModel):
    """What a job recorded about its result, by plan id: the record counts, and the judge's fingerprint of what was
    written, taken as it was read (a decimal number; without one both sides are compared whole).

    A plan without record counts was refused: nothing of it may be published.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprints: Mapping[str, str] = Field(default_factory=dict)
    plans: Mapping[str, RecordCounts]
