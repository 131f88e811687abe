"""Refusals: plans that failed before the judge saw a result of them, as the data-quality pages tell of them.

The marker of a failed plan (C20) goes when the plan is tried again. A refusal stays as long as a verdict does.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from firnlake_expectations.templates import REFUSALS, write_page
from firnlake_expectations.wording import log_name

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Refusal:
    """A plan of `lane` that was refused in `step` at `refused_ms`; times are epoch milliseconds.

    now_ms   the plan's clock, which is the same for all plans of one run
    records  the number of records that the plan was to read
    """

    table: str
    topic: str
    partition: int
    lane: str
    plan_id: str
    now_ms: int
    records: int
    step: str
    reason: str
    refused_ms: int

    @property
    def log(self) -> str:
        """The topic partition."""
        return log_name(self.topic, self.partition)

    def write(self, reports: Path) -> Path:
        """Store this as a new file under `reports`; raises OSError if that is not possible."""
        at = datetime.fromtimestamp(self.refused_ms / 1000, UTC)
        plan = re.sub(r"[^A-Za-z0-9_-]", "_", self.plan_id)[:100]
        name = f"{at:%Y%m%dT%H%M%S.%fZ}-{plan}-{uuid.uuid4().hex[:8]}.json"
        return write_page(reports / REFUSALS / name, json.dumps(asdict(self), indent=2, sort_keys=True))

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The refusal stored at `path`; None if it is gone, damaged, or not Firn's."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                table=str(told["table"]),
                topic=str(told["topic"]),
                partition=int(told["partition"]),
                lane=str(told["lane"]),
                plan_id=str(told["plan_id"]),
                now_ms=int(told["now_ms"]),
                records=int(told["records"]),
                step=str(told["step"]),
                reason=str(told["reason"]),
                refused_ms=int(told["refused_ms"]),
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            return None
