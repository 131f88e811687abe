"""The plan as a document: JSON that one room writes and the next one reads, checked on the way in."""

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import RefusedError
from pipeline.lake.folders import DATA_FOLDER
from pipeline.lake.topic_partition import TopicPartition
from pipeline.messages import printable
from pipeline.segments import Segment
from pipeline.segments.segment import MERGED, RUN, TAIL
from pipeline.sense import Lane
from pipeline.sense.transactions import Marker

LEVEL_OUT = {Lane.MERGE: MERGED, Lane.CLEAN: RUN, Lane.TIER: RUN, Lane.FULL: TAIL}
"""The lanes that make segments, and of which level. The lane ``retain`` only drops some."""
STAGE_INFIX = "__stage_"
FOLDER_OF_JOB = re.compile(f"/{DATA_FOLDER}/[0-9a-f]{{16}}/")
"""In the path of every data file that Firn has written: the folder of its job below the table's data."""


Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What a column of longs holds."""
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Input(BaseModel):
    """One segment that the plan takes, with the facts it was chosen by. Offsets are inclusive."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    level: Long
    base_offset: Long
    last_offset: Long
    records: Count
    bytes: Count
    copies: int = Field(default=1, ge=1, lt=2**63)
    """How often the table lists the file; records and bytes count every time."""
    may_stay: bool = False
    """Whether nothing in it changes unless the head has a newer record of one of its keys."""

    @property
    def order(self) -> tuple[int, int, str]:
        """Offset order, as that of a segment."""
        return (self.base_offset, self.last_offset, self.path)

    @classmethod
    def of(cls, segment: Segment, may_stay: bool = False) -> Self:
        return cls(
            path=segment.path,
            level=segment.level,
            base_offset=segment.base_offset,
            last_offset=segment.last_offset,
            records=segment.records,
            bytes=segment.bytes,
            copies=segment.copies,
            may_stay=may_stay,
        )


def span(inputs: Iterable[Input]) -> tuple[int, int] | None:
    """The lowest and the highest offset of ``inputs``, both inclusive; None without a record."""
    held = [one for one in inputs if one.records]
    if not held:
        return None
    return min(one.base_offset for one in held), max(one.last_offset for one in held)


class Plan(BaseModel):
    """One lane's work on one topic partition. Times are epoch milliseconds, sizes are file bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    id: str = ""
    table: str
    table_uuid: str
    snapshot_id: Long
    lane: Lane
    topic: str
    partition: Count
    now_ms: Long
    reason: str
    inputs: tuple[Input, ...] = Field(min_length=1)
    buried: tuple[Input, ...] = ()
    """Segments of ``<table>__tombstones`` that may hold a newer tombstone for a record of the inputs (C9)."""
    inputs_per_segment: Annotated[int, Field(ge=1, lt=2**63)] | None
    """`merge`: how many inputs become one segment (C13). None: inputs are packed by bytes."""
    segment_bytes: int = Field(ge=1, lt=2**63)
    clean_below: Long | None
    """A tombstone with a lower offset is clean (C7): the lowest offset outside the inputs. None: nothing is outside."""
    log_end_offset: Long
    """Highest offset of the topic partition: never removed (C4)."""
    delete_retention_ms: Count
    """How long past ``now_ms`` a tombstone stays that this plan's cleaning stamps (C8). Longer than the policy says by
    what the clock is behind an earlier commit of Firn's."""
    cleaner_threads: int = Field(default=1, ge=1, le=1000)
    """How many plans like this one may be worked on at a time: they share the table's budget in keys (C17)."""
    waiting_segments: Count = 0
    """`full`: how many cleanable segments had no room in this plan and wait for the next."""
    transactional: bool = False
    """Whether records of transactions or control records may be among the inputs (C10); not told for a copy."""
    markers: tuple[Marker, ...] = ()
    """The markers outside the inputs that decide transactions which began inside."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def level_out(self) -> int:
        """The level of the segments that this plan makes; RefusedError when its lane makes none."""
        return LEVEL_OUT[self.of_lane(*LEVEL_OUT).lane]

    @property
    def changes(self) -> bool:
        """Whether there is anything to do: a tail without a head may stay as it is, even when asked for."""
        return not all(segment.may_stay for segment in self.inputs)

    @property
    def has_tail(self) -> bool:
        return any(one.level == TAIL for one in self.inputs)

    @property
    def tail_is_older(self) -> bool:
        """Whether every record of the tail is known to be older than every other record of the plan, and there once.

        Then records of the tail need no comparing among themselves (C16). Not so when records came late, where the
        transactions of all of them have to be told first (C10), where a file is listed twice, or where another writer
        has claimed the level.
        """
        held = sorted((one for one in self.inputs if one.records), key=lambda one: one.base_offset)
        tail = [one for one in held if one.level == TAIL]
        beneath = tail == held[: len(tail)]
        apart = all(one.last_offset < other.base_offset for one, other in pairwise(held[: len(tail) + 1]))
        own = all(one.copies == 1 and FOLDER_OF_JOB.search(one.path) for one in tail)
        return bool(tail) and beneath and apart and own and not self.buried and not self.transactional

    @property
    def stage(self) -> str:
        """Identifier of the stage table of this plan."""
        return f"{self.table}{STAGE_INFIX}{self.id}"

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.inputs)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.inputs)

    @property
    def title(self) -> str:
        """One line for people: what, where, why."""
        where = printable(str(self.topic_partition))
        return f"{where} {self.lane}: {len(self.inputs)} segments ({self.reason})"

    def of_lane(self, *allowed: Lane) -> Self:
        """This plan; RefusedError unless its lane is one of ``allowed``."""
        if self.lane not in allowed:
            raise RefusedError(
                f"plan {self.id} ({self.title}) is of the lane {self.lane}; allowed here: {', '.join(allowed)} "
                f"(lane {Lane.RETAIN}: firn retain, the others: firn compact)"
            )
        return self

    def sealed(self) -> Self:
        """The same plan under its id, a digest of everything else in it."""
        return self.model_copy(update={"id": self.digest()})

    def file_in(self, folder: Path) -> Path:
        """Where ``write`` puts the plan: named by its id."""
        return folder / f"{self.id}.json"

    def write(self, folder: Path) -> Path:
        """Write the plan to ``<folder>/<id>.json`` and return that path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = self.file_in(folder)
        path.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a plan file; RefusedError when it is missing, not a plan, or was changed after it was made."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise RefusedError(
                f"plan {path} can't be read: there is no such file (an old one is collected, FIRN_PLANS_AGE_MS); plan "
                "again, in Airflow by clearing the run from its plan task on"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(f"plan {path} can't be read: {error}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """A plan from JSON ``text`` that came from ``source`` (used in messages)."""
        try:
            plan = cls.model_validate_json(text)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(str(part) for part in problem["loc"]) or "the document"
            raise RefusedError(f"plan {source} is not a plan: {place}: {problem['msg']}") from error
        if plan.id != plan.digest():
            raise RefusedError(
                f"plan {source} has id {plan.id!r}; allowed: {plan.digest()}, what its content digests to"
            )
        return plan

    def digest(self) -> str:
        """What the plan's content hashes to: equal for equal metadata, policy and clock."""
        content = self.model_dump(mode="json", exclude={"id"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
