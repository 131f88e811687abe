"""The plan as a JSON document: one step writes it, the next one reads and checks it; and what of its inputs stays.

A segment of the tail that loses no record is rewritten only if it is a small neighbour of a rewritten segment. Without
this exception, a tail that loses a few records at every cleaning would end up as many small segments. Kafka's Cleaner
also groups small segments (`groupSegmentsBySize`).
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, PlainSerializer, TypeAdapter

from firnlake.clock import ahead
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.files import JOB_ID, FrozenModel, job_of
from firnlake.lanes import Lane
from firnlake.table.segment import TAIL, Segment, TopicPartition
from firnlake.table.transactions import Marker
from firnlake_expectations.wording import count, printable

_NARROW_BYTES = 32
"""Bytes that a record's key and offset take in a file, for a key of usual length."""


Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""An integer in the range of an Iceberg long."""
Count = Annotated[int, Field(ge=0, lt=2**63)]


def stage_parts(name: str) -> tuple[str, str]:
    """Split a stage name into table and job id; raises RefusedError when ``name`` is not a stage name."""
    table, _, job_id = name.rpartition("/")
    if not table or not re.fullmatch(JOB_ID, job_id):
        raise RefusedError(f"{name!r} is not a stage; allowed: <namespace>.<table>/<job id>")
    return table, job_id


Inputs = Annotated[
    tuple[Segment, ...],
    # A job may have thousands of inputs, so a document leaves out facts that have their defaults.
    PlainSerializer(partial(TypeAdapter(tuple[Segment, ...]).dump_python, mode="json", exclude_defaults=True)),
]


class Plan(FrozenModel):
    """One lane's work on one topic partition. Times are epoch milliseconds, sizes are file bytes."""

    version: Literal[1] = 1
    id: str = ""
    table: str
    snapshot_id: Long
    lane: Lane
    topic: str
    partition: Count
    now_ms: Long
    reason: str
    inputs: Inputs = Field(min_length=1)
    may_stay: tuple[str, ...] = ()
    """Paths of inputs that change only if the head has a newer record of one of their keys."""
    removed_tombstones: Inputs = ()
    """Segments of the branch ``firn_tombstones`` that may hold a newer tombstone for a record of the inputs (C9)."""
    inputs_per_segment: Annotated[int, Field(ge=1, lt=2**63)] | None
    """Lane `merge`: number of inputs per output segment (C13). None if the outputs are limited by bytes."""
    segment_bytes: int = Field(ge=1, lt=2**63)
    clean_below: Long | None
    """Lowest offset of records outside the inputs; None if there are none. Tombstones below it are clean (C7)."""
    log_end_offset: Long
    """Highest offset of the topic partition, whose record is never removed (C4)."""
    kept_from: Long | None = None
    """A lower bound of the highest offset that readers see, if row-level deletes may hide the log end; None if it is
    the log end itself. A record at or past this bound is removed only if a newer record supersedes it (C4, C27)."""
    sequence_number: Count | None = None
    """Data sequence number that the results get: the number of the snapshot on which the plan was made, so that
    equality deletes that land later apply to the results (C27). None if results get the number of their own
    commit. A plan of lane `convert` takes equality deletes up to this number into account; later equality deletes apply
    to the segments, which stay in place."""
    rules: dict[str, str] = Field(default_factory=dict)
    """The properties by which the plan chose its inputs and decides over records, with their values (``rules_of``)."""
    clock_behind_ms: Count = 0
    """Milliseconds by which ``now_ms`` is behind the clock of an earlier commit of Firn, from which new delete horizons
    count instead (C8)."""
    transactional: bool = False
    """True when the inputs may hold transactional or control records that the plan's lane treats specially (C10)."""
    markers: tuple[Marker, ...] = ()
    """Markers outside the inputs that decide transactions whose records are in the inputs."""
    requests: tuple[str, ...] = ()
    """Ids of the requests that the plan serves (C30)."""
    unread: bool = False
    """True if an input holds a record of a key to erase, or may hold one: then the names of the files that the plan
    writes say so, and lane `erase` reads them (C30)."""
    position_deletes_max: Count = 0
    """Lane `convert`: maximum number of position delete files per Iceberg partition before a merge."""

    @property
    def delete_retention_ms(self) -> int:
        """How long a tombstone stays after a cleaning has first found it clean (C8); 0 for lanes that clean nothing."""
        return int(self.rules.get("delete.retention.ms", 0))

    @property
    def topic_partition(self) -> TopicPartition:
        """The plan's topic partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def changes(self) -> bool:
        """True when the plan may change a segment. A forced plan for the tail alone may have nothing to change."""
        return not {segment.path for segment in self.inputs} <= {*self.may_stay}

    @property
    def older(self) -> frozenset[str]:
        """Paths of the tail if every record of it is known to occur once and to be older than all other records of the
        plan; otherwise none.

        Then records of the tail need no comparison with each other (C16): the plan searches the tail only for keys of
        the other inputs. There are none when records landed late, when the transactions of all records must be decided
        first (C10), when a file is listed twice, or when another writer has written files of the tail's level.
        """
        held = sorted((one for one in self.inputs if one.records), key=lambda one: one.base_offset)
        tail = [one for one in held if one.level == TAIL]
        beneath = tail == held[: len(tail)]
        apart = all(one.last_offset < other.base_offset for one, other in pairwise(held[: len(tail) + 1]))
        own = all(one.copies == 1 and job_of(one.path) is not None for one in tail)
        is_older = beneath and apart and own and not (self.removed_tombstones or self.transactional)
        return frozenset(one.path for one in self.inputs if one.level == TAIL) if tail and is_older else frozenset()

    @property
    def records(self) -> int:
        """Records of all inputs."""
        return sum(segment.records for segment in self.inputs)

    @property
    def bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(segment.bytes for segment in self.inputs)

    @property
    def read_bytes(self) -> int:
        """Estimate of the bytes that the plan reads: lane `convert` reads only a few columns, lane `retain` nothing."""
        narrow = min(self.bytes, self.records * _NARROW_BYTES)
        return {"segments": self.bytes, "deletes": narrow, "nothing": 0}[self.lane.traits.writes]

    def takes(self, other: "Plan") -> bool:
        """True when this plan takes all inputs of ``other``, the plan of a lane of a lower level in the same run."""
        mine, others = self.lane.traits.level_out, other.lane.traits.level_out
        lower = mine is not None and others is not None and others < mine
        return lower and {one.path for one in self.inputs}.issuperset(one.path for one in other.inputs)

    @property
    def title(self) -> str:
        """A one-line title: topic partition, lane, number of segments and reason."""
        where = printable(str(self.topic_partition))
        return f"{where} {self.lane}: {count(len(self.inputs), 'segment')} ({self.reason})"

    @property
    def subject(self) -> str:
        """The beginning of messages about an error of work on the plan."""
        return f"table {self.table}, {self.topic_partition} {self.lane}"

    def check_clock(self) -> None:
        """Raise UnavailableError, which marks no plan as failed, if this plan's clock is too far ahead (``clock``)."""
        if problem := ahead(self.now_ms):
            raise UnavailableError(
                f"plan {self.id} ({self.title}): its clock {problem}; nothing was changed; set the wrong clock, and "
                "plan again"
            )

    def sealed(self) -> Self:
        """Return the same plan with its id, which is a digest of all other fields."""
        return self.model_copy(update={"id": self.digest()})

    def digest(self) -> str:
        """Digest of the plan's content: equal for equal metadata, policy and clock."""
        content = self.model_dump(mode="json", exclude={"id"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def staying(plan: Plan, touched: Collection[str]) -> frozenset[str]:
    """Paths of the inputs that stay in place, if the head supersedes records only of inputs at ``touched`` paths."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    may_stay = frozenset(plan.may_stay) - frozenset(touched)
    written = [segment.path not in may_stay for segment in inputs]
    for first, last in list(_series(written)):
        _grow(inputs, written, first, last, plan.segment_bytes)
    return frozenset(segment.path for segment, is_written in zip(inputs, written, strict=True) if not is_written)


def series(plan: Plan, stay: Collection[str]) -> Iterator[tuple[Segment, ...]]:
    """Yield each series of neighbouring inputs (in offset order) of ``plan`` whose paths are not in ``stay``."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    for first, last in _series([segment.path not in stay for segment in inputs]):
        yield tuple(inputs[first:last])


def _series(written: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end (exclusive) of each series of consecutive true values in ``written``."""
    for is_written, places in groupby(range(len(written)), written.__getitem__):
        if is_written:
            own = list(places)
            yield own[0], own[-1] + 1


def _grow(inputs: Sequence[Segment], written: list[bool], first: int, last: int, target: int) -> None:
    """Add neighbours that are no larger than the series, until the series has the ``target`` bytes of a segment.

    Each added neighbour thus becomes part of a segment of at least twice its size, so that a record is rewritten only a
    logarithmic number of times for the sake of larger segments.
    """
    size = sum(segment.bytes for segment in inputs[first:last])
    while size < target:
        beside = [place for place in (first - 1, last) if 0 <= place < len(inputs) and not written[place]]
        small = [place for place in beside if inputs[place].bytes <= min(size, target // 2)]
        if not small:
            return
        place = min(small, key=lambda candidate: inputs[candidate].bytes)
        written[place] = True
        size += inputs[place].bytes
        first, last = min(first, place), max(last, place + 1)
