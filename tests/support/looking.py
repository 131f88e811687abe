"""Decisions without data: topic partitions described in a few words, and what the lanes say of them.

    policy merge.segments=3 topic.t.active.segments=1     properties of the table, without `firn.`; `name=` unsets one
    values orders: merge.segments · doubts                what they come to
    segments L3[0-99],bytes=300 2*L0 | 1/L2,run=7         more segments: level, offsets, facts (FACTS)
    removed [0-20] · stray 15 · undecided 15              what lies beside the segments
    override ...                                          what a person asks of one run
    at 1d                                                 the clock, from NOW
    look merge full · look! full                          the work of these lanes or of all, or why they wait
    state · plan full · order full                        figures, a plan, the order of work

A segment without offsets follows the last one of its topic partition, with ten records of ten bytes, an hour old;
``2*`` writes it twice. `1/L0` is in partition 1, `t:L0` in topic t. Ages are times before NOW, horizons after it.
`look` is the one place that knows how the product decides: today by `due_plans`, `plan_partition` and `Outlook`.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa

from firnlake.errors import FirnError
from firnlake.inspect.outlook import Outlook
from firnlake.lanes import Lane, has_work, until
from firnlake.lanes.dirty_ratio import dirty_ratio
from firnlake.plan.make import admit, due_plans, plan_partition
from firnlake.plan.read_states import Sensed
from firnlake.table.policy import NAMES, Policies
from firnlake.table.segment import SCHEMA, Segment, Segments, TopicPartition, UnassignedFile
from firnlake.table.transactions import Transactions, Undecided
from tests.support.records import NOW, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from firnlake.job.plan import Plan
    from firnlake.lanes.answer import Reason
    from firnlake.table.policy import Policy
    from firnlake.table.state import State

TABLE: Final = "db.t"
HOUR: Final = 3_600_000
FACTS: Final = {
    "bytes": "bytes",
    "data": "data_bytes",
    "records": "records",
    "nokey": "null_keys",
    "tombstones": "tombstones",
    "stamped": "stamped",
    "copies": "copies",
    "run": "sequence_number",
    "deletes": "row_deletes",
    "hidden": "hidden",
    "equality": "equality_deletes",
    "holding": "holding_deletes",
}
"""Facts of a segment that are numbers; ``?`` where metadata does not tell.

Others: age, oldest, newest, commit and written (times before NOW), horizon (first..last, after NOW), problem (``_`` for
a blank), foreign (another engine wrote it), own (of lane `erase`), empty.
"""
_SEGMENT: Final = re.compile(
    r"(?:(?P<times>\d+)\*)?(?:(?P<topic>[\w.]+):)?(?:(?P<partition>\d+)/)?L(?P<level>[0-3])"
    r"(?:\[(?P<base>\d+)-(?P<last>\d+)\])?(?P<facts>(?:,\S+)?)"
)
_OWN: Final = f"/_firn/{UUID(int=0)}/{'0' * 16}/"
"""Where Firn writes; commands don't show it."""
_UNITS: Final = (("d", 24 * HOUR), ("h", HOUR), ("m", 60_000), ("s", 1000), ("ms", 1))


class Decided(NamedTuple):
    """The work of a lane: its segments in offset order, and what a plan says beside them."""

    lane: str
    segments: tuple[Segment, ...]
    clean_below: int | None
    log_end: int


class Looking:
    """Topic partitions of one table, described by commands, and what the lanes say of them."""

    def __init__(self) -> None:
        self.now = NOW
        # Segments of cases are small; without this, their dirty ratio would make nothing due.
        self.properties: dict[str, str] = {"firn.min.dirty.bytes": "0"}
        self.overrides: dict[str, str] = {}
        self.found: list[Segment] = []
        self.strays: tuple[UnassignedFile, ...] = ()
        self.removed: defaultdict[TopicPartition, tuple[Segment, ...]] = defaultdict(tuple)
        self.transactions = Transactions()
        self.published: int | None = None
        self._next: defaultdict[TopicPartition, int] = defaultdict(int)
        self._made = 0

    def answer(self, line: str, _text: Sequence[str] = ()) -> list[str]:
        """Do what ``line`` says, and return what there is to say; a refusal is an answer as well."""
        name, _, rest = line.partition(" ")
        try:
            said = getattr(self, f"do_{name.rstrip('!')}")(rest, **({"force": True} if name.endswith("!") else {}))
            return [line.replace(_OWN, "") for line in said or ()]
        except FirnError as error:
            return [f"{type(error).__name__.removesuffix('Error').lower()}: {error}"]

    # What there is.

    def do_policy(self, rest: str) -> None:
        self.do_property(shlex.join(f"firn.{word}" for word in shlex.split(rest)))

    def do_property(self, rest: str) -> None:
        """Properties by their whole names; what is refused changes nothing."""
        before = self.properties
        given = dict(_pairs(rest))
        self.properties = {name: value for name, value in {**before, **given}.items() if value}
        try:
            self._policies()
        except FirnError:
            self.properties = before
            raise

    def do_override(self, rest: str) -> None:
        """Properties of one run, by their whole names."""
        before, self.overrides = self.overrides, dict(_pairs(rest))
        try:
            self._policies()
        except FirnError:
            self.overrides = before
            raise

    def do_segments(self, rest: str) -> None:
        for word in rest.split():
            self.found += self._segments(word)

    def do_clear(self, _: str) -> None:
        """No segment any more, and nothing beside them."""
        self.found, self.strays, self.transactions = [], (), Transactions()
        self.removed.clear()
        self._next.clear()
        self._made = 0

    def do_removed(self, rest: str) -> None:
        """Segments of removed tombstones."""
        after = self._next.copy()
        for one in self._segments(rest.replace("[", "L0[")):
            self.removed[one.topic_partition] += (one,)
        self._next = after

    def do_stray(self, rest: str) -> None:
        """A file of unknown topic partition, with offsets from this one on."""
        self.strays = (UnassignedFile("stray", "has no topic", (None, None), (None, None), int(rest)),)

    def do_undecided(self, rest: str) -> None:
        """The offset of the first record of an open transaction."""
        self.transactions = Transactions(undecided=Undecided(int(rest), 1))

    def do_unreadable(self, rest: str) -> None:
        """Why the transactions can't be told."""
        self.transactions = Transactions(problem=rest)

    def do_published(self, rest: str) -> None:
        """The clock of the newest commit of Firn."""
        self.published = NOW + span(rest)

    def do_at(self, rest: str) -> None:
        self.now = NOW + span(rest)

    # What the lanes say.

    def do_look(self, rest: str, *, force: bool = False) -> Iterator[str]:
        """What each lane takes, or why it waits; lanes are those of one run, in which `full` goes before the others."""
        lanes = [Lane(word) for word in rest.split()] or list(Lane)
        for state in self._states(surveyed=True):
            where = "" if self._alone else f"{state.topic_partition} "
            outlook = Outlook(self._sensed(), state)
            for lane in lanes:
                plan = outlook.due.get(lane)
                if force or (lane in outlook.yielding and Lane.FULL not in lanes):
                    plan = plan_partition(lane, self._table(), state, force)
                if plan:
                    yield f"{where}{lane} takes {_shown(plan)}: {plan.reason}"
                elif force:
                    yield f"{where}{lane} takes nothing"
                else:
                    yield f"{where}{lane} waits{self._why(lane, outlook.not_due(lane), state)}"

    def do_state(self, _: str) -> Iterator[str]:
        """Each topic partition, the filthiest first: its figures, and what is in the way."""
        for state in self._states(surveyed=True):
            where = "" if self._alone else f"{state.topic_partition}: "
            cleanable = " ".join(map(_name, state.cleanable)) or "nothing"
            held_back = f"{state.uncleanable_bytes} bytes not"
            yield f"{where}dirty ratio {dirty_ratio(state):.4g}, cleanable {cleanable}, {held_back}"
            yield (
                f"{where}log end {state.log_end_offset}, kept from {state.kept_from}, cleaned through "
                f"{state.cleaned_through}, first dirty {state.first_dirty_offset}"
            )
            if state.held:
                until = "" if state.held.until_ms is None else f", in {self._in(state.held.until_ms)}"
                yield f"{where}held from {_name(state.held.segment)}: {state.held.rule} {state.held.why}{until}"
            yield from (f"{where}blocked: {why}" for why in state.blockers)
            yield from (f"{where}too large: {why}" for why in state.oversized)

    def do_plan(self, rest: str, *, force: bool = False) -> Iterator[str]:
        """The plan of a lane in each topic partition, with the figures of which compact and publish make use."""
        for state in self._states():
            if plan := plan_partition(Lane(rest), self._table(), state, force):
                yield f"takes {_shown(plan)}: {plan.reason}"
                stay = " ".join(_name(one) for one in plan.inputs if one.path in plan.may_stay)
                yield from ([f"may stay: {stay}"] if stay else [])
                if plan.removed_tombstones:
                    yield f"reads {len(plan.removed_tombstones)} segments of removed tombstones"
                kept = plan.log_end_offset if plan.kept_from is None else plan.kept_from
                yield f"clean below {plan.clean_below}, log end {plan.log_end_offset}, kept from {kept}"
                horizon = self.now + plan.clock_behind_ms + plan.delete_retention_ms
                yield f"horizon {self._in(horizon)} from the clock, segments of {plan.segment_bytes} bytes"
            else:
                yield "nothing due"

    def do_order(self, rest: str, *, force: bool = False) -> Iterator[str]:
        """The topic partitions in the order of work, and those that wait for the next run."""
        states = self._states()
        plans = due_plans(Lane(rest), self._table(), states, force)
        taken, postponed = admit(plans, states[0].policy.run_max_bytes)
        yield " ".join(str(plan.topic_partition) for plan in taken) or "nothing due"
        yield from postponed

    def do_doubts(self, _: str) -> Iterable[str]:
        """Why the maximum lag can't be met."""
        return self._policies().doubts()

    def do_values(self, rest: str) -> Iterator[str]:
        """Effective values: of a topic, `values orders: merge.segments`, or of the table's other topics."""
        topic, colon, names = rest.rpartition(":")
        policy = self._policies().of(topic if colon else "")
        if policy.problem:
            yield policy.problem
        yield " ".join(f"{name}={getattr(policy, NAMES.get(name, name))}" for name in names.split())

    # The same for properties, which compare instead of reading.

    def decided(self, *, force: bool = False) -> list[Decided]:
        """The work of each lane that has some in the only topic partition, as if it was alone in its run."""
        table = self._table()
        plans = (plan_partition(lane, table, state, force) for state in self._states() for lane in Lane)
        return [self._decided(plan) for plan in plans if plan]

    def due_at(self) -> int | None:
        """When anything is due in the only topic partition if nothing is written."""
        return next(
            (self.now if has_work(state, Lane) else until(state) for state in self._states(surveyed=True)), None
        )

    @property
    def policy(self) -> Policy:
        """That of the topics without properties of their own."""
        return self._policies().default

    @property
    def names(self) -> list[str]:
        """All settings."""
        return sorted(NAMES)

    # How it is put together.

    def _decided(self, plan: Plan) -> Decided:
        return Decided(str(plan.lane), plan.inputs, plan.clean_below, plan.log_end_offset)

    @property
    def _alone(self) -> bool:
        return len({one.topic_partition for one in self.found}) < 2  # two

    def _policies(self) -> Policies:
        return Policies.parse(TABLE, self.properties, self.overrides)

    def _table(self) -> Segments:
        return replace(
            Segments.of(_rows(self.found), TABLE, 7), strays=tuple(self.strays), newest_clock_ms=self.published
        )

    def _states(self, *, surveyed: bool = False) -> list[State]:
        """Read as a run reads them. If ``surveyed``, no lane is due in what is quiet."""
        sensed = self._sensed()
        states = [*sensed.states()]
        for state in states if surveyed else ():
            quiet_until_ms = sensed.quiet_until[state.topic_partition]
            assert (state.topic_partition in sensed.quiet) == (quiet_until_ms > self.now)
            if state.topic_partition in sensed.quiet:
                assert not has_work(state, Lane), state.topic_partition
                assert not any(map(state.too_large, state.head))
            assert until(state, quiet_until_ms=quiet_until_ms) == until(state), state.topic_partition
        return states

    def _sensed(self) -> Sensed:
        segments = self._table()
        transactions = dict.fromkeys(segments, self.transactions)
        return Sensed(segments, self._policies(), self.now, self.removed, transactions)

    def _segments(self, word: str) -> list[Segment]:
        match = _SEGMENT.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is no segment; allowed: [times*][topic:][partition/]L0[first-last][,fact]...")
        where = TopicPartition(match["topic"] or "orders", int(match["partition"] or 0))
        return [self._segment(match, where) for _ in range(int(match["times"] or 1))]

    def _segment(self, match: re.Match[str], where: TopicPartition) -> Segment:
        facts = _facts(match["facts"])
        level, base = int(match["level"]), self._next[where] if match["base"] is None else int(match["base"])
        records = facts.get("records", 10) if match["last"] is None else int(match["last"]) - base + 1
        last = base + records - 1 if match["last"] is None else int(match["last"])
        if "problem" in facts and match["base"] is None:
            base = last = -1
        if facts.pop("empty", False):
            base, last, records = -1, -1, 0
        self._next[where] = max(self._next[where], last + 1)
        size = facts.get("bytes", facts.get("records", records) * 10)
        hour_ago = NOW - HOUR
        chosen: dict[str, Any] = {
            "records": records,
            "bytes": size,
            "data_bytes": size,
            "tombstones": 0,
            "null_keys": 0,
            "oldest_ms": hour_ago,
            "newest_ms": hour_ago,
            "sequence_number": 1,
            "row_deletes": facts.get("equality_deletes", 0),
            "committed_ms": hour_ago,
            "by_firn": level > 0,
        }
        self._made += 1
        own = facts.pop("own", level > 0 and facts.get("by_firn", True))
        return Segment(f"{_OWN if own else ''}s{self._made:02}", where, level, base, last, **chosen | facts)

    def _why(self, lane: Lane, reason: Reason, state: State) -> str:
        later = until(state, [lane])
        due = "" if later is None else f"; due in {self._in(later)}"
        return f": {reason.rule} {reason.text}{due}"

    def _in(self, moment: int) -> str:
        return _span(moment - self.now)


def _facts(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name in FACTS:
            found[FACTS[name]] = None if value == "?" else int(value)
        elif name == "age":
            found |= {"oldest_ms": _before(value), "newest_ms": _before(value)}
        elif name in ("oldest", "newest"):
            found[f"{name}_ms"] = _before(value)
        elif name in ("commit", "written"):
            found[{"commit": "committed_ms", "written": "written_ms"}[name]] = None if value == "?" else _before(value)
        elif name == "horizon":
            first, _, last = value.partition("..")
            ends = {"first_horizon_ms": first, "last_horizon_ms": last or first}
            found |= {end: None if moment == "?" else NOW + span(moment) for end, moment in ends.items()}
        elif name == "problem":
            found["problem"] = value.replace("_", " ")
        elif word == "foreign":
            found["by_firn"] = False
        elif word in ("empty", "own"):
            found[word] = True
        else:
            raise ValueError(f"{word!r} is no fact of a segment; allowed: {', '.join(FACTS)} and those in FACTS' text")
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for word in shlex.split(text) for name, _, value in [word.partition("=")]]


def _before(text: str) -> int:
    return NOW - span(text)


def _span(milliseconds: int) -> str:
    text, left = "-" if milliseconds < 0 else "", abs(milliseconds)
    for unit, length in _UNITS:
        number, left = divmod(left, length)
        text += f"{number}{unit}" if number else ""
    return text if milliseconds else "0"


def _rows(segments: Sequence[Segment]) -> pa.Table:
    """A table with a row of ``SCHEMA`` for each of ``segments``, in the same order."""
    facts = attrgetter("topic_partition.topic", "topic_partition.partition", *SCHEMA.names[2:])
    columns = list(zip(*map(facts, segments), strict=True)) or [()] * len(SCHEMA.names)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _name(one: Segment) -> str:
    return f"L{one.level}[{one.base_offset}-{one.last_offset}]" if one.records else f"L{one.level}[]"


def _shown(plan: Plan) -> str:
    """The inputs of a plan; of many, the first and the last."""
    names = [_name(one) for one in plan.inputs]
    return " ".join(names) if len(names) < 9 else f"{names[0]}..{names[-1]} ({len(names)})"  # a line
