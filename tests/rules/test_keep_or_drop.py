"""What becomes of a record (C2 to C5, C7 to C10): the outcome of each, which record of a key is the newest, also for
more keys than memory holds, and which marker decides a record of a transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firnlake.compact import survey, transactions
from firnlake.compact.keep_or_drop import NO_HORIZON, WRITTEN, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.survey import latest_per_key
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.keys import NO_KEY
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL
from firnlake.table.transactions import RECORDS, Marker, Undecided, first_undecided, last_of
from tests.support import plans
from tests.support.plans import Held, Row, damage_keys, plan_inputs

NOW, STAMP, NONE = 1_000, 1_007, NO_HORIZON
LEVELS = {"landed": LANDED, "merged": MERGED, "tail": TAIL}
HORIZONS = {"past": NOW - 1, "now": NOW, "future": NOW + 1}
FATES = {
    "newest": (Outcome.KEPT, NONE),
    "newest older": (Outcome.KEPT, NONE),
    "": (Outcome.SUPERSEDED, NONE),
    "older end": (Outcome.SUPERSEDED, NONE),
    "newest past": (Outcome.KEPT, NONE),
    "newest tombstone": (Outcome.KEPT, STAMP),
    "newest tombstone unclean": (Outcome.KEPT, NONE),
    "newest tombstone past": (Outcome.TOMBSTONE_REMOVED, NOW - 1),
    "newest tombstone past tail": (Outcome.TOMBSTONE_REMOVED, NOW - 1),
    "newest tombstone now": (Outcome.TOMBSTONE_REMOVED, NOW),
    "newest tombstone future": (Outcome.KEPT, NOW + 1),
    "newest tombstone past landed": (Outcome.KEPT, STAMP),
    "newest tombstone past merged": (Outcome.KEPT, STAMP),
    "newest tombstone past older": (Outcome.KEPT, STAMP),
    "newest tombstone past unclean": (Outcome.KEPT, NOW - 1),
    "newest tombstone past end": (Outcome.KEPT, NOW - 1),
    "tombstone past": (Outcome.SUPERSEDED, NOW - 1),
    "keyless": (Outcome.QUARANTINED, NONE),
    "keyless past tombstone": (Outcome.QUARANTINED, NOW - 1),
    "keyless future landed": (Outcome.QUARANTINED, NOW + 1),
    "keyless end": (Outcome.KEPT, NONE),
    "aborted newest": (Outcome.ABORTED, NONE),
    "aborted keyless": (Outcome.ABORTED, NONE),
    "control keyless": (Outcome.KEPT, NONE),
    "control past": (Outcome.KEPT, NONE),
    "control ended": (Outcome.KEPT, STAMP),
    "control ended keyless future": (Outcome.KEPT, NOW + 1),
    "control ended past": (Outcome.MARKER_REMOVED, NOW - 1),
    "control ended past landed": (Outcome.KEPT, STAMP),
    "control ended past end": (Outcome.KEPT, NOW - 1),
    "control ended past unclean": (Outcome.KEPT, NOW - 1),
    "repeated newest": (Outcome.REPEATED, NONE),
    "repeated keyless": (Outcome.REPEATED, NONE),
    "repeated control ended past": (Outcome.REPEATED, NOW - 1),
    "repeated aborted": (Outcome.REPEATED, NONE),
    "removed tombstone newest landed": (Outcome.RESTORED, STAMP),
    "removed tombstone newest landed unclean": (Outcome.RESTORED, NONE),
    "removed tombstone landed": (Outcome.STILL_REMOVED, STAMP),
    "removed tombstone newest landed repeated": (Outcome.STILL_REMOVED, STAMP),
}
"""What is known of a record, with its outcome and the horizon that it carries. It is in a run at offset 5 of 9."""


@pytest.mark.parametrize(("known", "fate"), FATES.items(), ids=FATES)
def test_c2_to_c5_c7_to_c10_each_record_has_one_outcome(known: str, fate: tuple[Outcome, int]) -> None:
    words = known.split()
    flags = {name: np.array([name in words]) for name in ("keyless", "newest", "tombstone")}
    states = {name: np.array([name in words]) for name in ("control", "aborted", "ended", "repeated")}
    asked = Records(
        offset=np.array([9 if "end" in words else 5]),
        has_older=np.array(["older" in words]),
        horizon=np.array([next((HORIZONS[word] for word in words if word in HORIZONS), NONE)]),
        level=next((LEVELS[word] for word in words if word in LEVELS), RUN),
        removed_before="removed" in words,
        **flags,
        **states,
    )
    plan = Parameters(9, 5 if "unclean" in words else 6 if "end" not in words else None, NOW, STAMP)
    assert (Outcome(outcomes(asked, plan)[0]), horizons(asked, plan)[0]) == fate
    if not words or not {"control", "aborted", "ended", "repeated"} & set(words):
        alone = replace(asked, control=np.False_, aborted=np.False_, ended=np.False_, repeated=np.False_)
        assert (Outcome(outcomes(alone, plan)[0]), horizons(alone, plan)[0]) == fate


@dataclass(frozen=True)
class Record:
    """One record among a plan's inputs, or a tombstone that an earlier cleaning removed (``removed``)."""

    offset: int
    key: int | None
    tombstone: bool = False
    level: int = RUN
    horizon: int | None = None
    control: bool = False
    aborted: bool = False
    ended: bool = False
    repeated: bool = False
    removed: bool = False
    noise: bool = False
    """Value of ``newest`` where it has no meaning."""

    @property
    def competes(self) -> bool:
        """True when it is one of the versions of its key."""
        return self.key is not None and not (self.control or self.aborted or self.repeated)

    @property
    def stamped(self) -> bool:
        """True when an earlier cleaning has stamped it: landed records may hold anything in that column."""
        return self.level in (RUN, TAIL) and self.horizon is not None


@dataclass(frozen=True)
class Case:
    """All records of a plan, and the plan's figures."""

    records: tuple[Record, ...]
    plan: Parameters

    def versions(self, key: int | None) -> list[Record]:
        """The present records of ``key``."""
        return [one for one in self.records if one.competes and not one.removed and one.key == key]

    def restored(self, key: int | None) -> Record | None:
        """The removed tombstone that comes back: older records are there again, and nothing newer."""
        own = [one for one in self.records if one.removed and one.competes and one.key == key]
        newest = max(own, key=lambda one: one.offset, default=None)
        present = [one.offset for one in self.versions(key)]
        return newest if newest and present and max(present) < newest.offset else None

    def is_clean(self, one: Record) -> bool:
        """C7: nothing outside the inputs can hold an older offset."""
        return self.plan.clean_below is None or one.offset < self.plan.clean_below

    def may_go(self, one: Record) -> bool:
        """C9: stamped by an earlier commit, past its horizon, clean again, not the end of the log."""
        past = one.stamped and one.horizon is not None and one.horizon <= self.plan.now
        return past and self.is_clean(one) and one.offset != self.plan.log_end_offset

    def supersedes_any(self, one: Record) -> bool:
        """True when an older version of its key is there."""
        return one.competes and any(other.offset < one.offset for other in self.versions(one.key))

    def fate(self, one: Record) -> Outcome:
        """The contract's outcome of one record."""
        if one.removed:
            return Outcome.RESTORED if one is self.restored(one.key) else Outcome.STILL_REMOVED
        if one.repeated:
            return Outcome.REPEATED
        if one.control:
            return Outcome.MARKER_REMOVED if one.ended and self.may_go(one) else Outcome.KEPT
        if one.aborted:
            return Outcome.ABORTED
        if one.key is None:
            return Outcome.KEPT if one.offset == self.plan.log_end_offset else Outcome.QUARANTINED
        if self.restored(one.key) or any(other.offset > one.offset for other in self.versions(one.key)):
            return Outcome.SUPERSEDED
        goes = one.tombstone and self.may_go(one) and not self.supersedes_any(one)
        return Outcome.TOMBSTONE_REMOVED if goes else Outcome.KEPT

    def stamp(self, one: Record) -> int | None:
        """The delete horizon that the contract gives a record that is written."""
        if one.key is None and not one.control:
            return one.horizon
        if not (one.ended if one.control else one.tombstone):
            return None
        if one.stamped and not self.supersedes_any(one):
            return one.horizon
        return self.plan.stamp if self.is_clean(one) else None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Records of a few keys at distinct offsets, with copies of some, and removed tombstones at any."""
    offsets = draw(st.lists(st.integers(0, 9), unique=True, max_size=8))
    end = max(offsets, default=0) + draw(st.integers(0, 1))
    found = []
    for offset in offsets:
        one = Record(
            offset,
            draw(st.sampled_from((0, 0, 0, 1, 1, None))),
            tombstone=draw(st.integers(0, 3)) > 0,
            level=draw(st.sampled_from((LANDED, MERGED, RUN, RUN, TAIL, TAIL))),
            horizon=draw(st.sampled_from((None, NOW - 1, NOW, NOW, NOW + 1))),
            noise=draw(st.booleans()),
        )
        kind = draw(st.integers(0, 9))
        # The end of the log is never aborted: the marker that says so lies past it.
        one = replace(one, control=kind < 2, ended=kind == 1, aborted=kind == 2 and offset != end)
        found.append(one)
        if draw(st.integers(0, 9)) == 0:
            found.append(replace(one, repeated=True))
    # Below the end of the log, which nothing removes; one that came back once may be there twice.
    places = st.tuples(st.integers(0, 1), st.integers(0, max(end - 1, 0)), st.booleans())
    for key, offset, twice in draw(st.lists(places, unique_by=lambda place: place[:2], max_size=2)):
        one = Record(offset, key, tombstone=True, horizon=NOW, removed=True, noise=True)
        found += [one, replace(one, repeated=True)] if twice else [one]
    below = draw(st.sampled_from((None, None, 3, 6)))
    return Case(tuple(draw(st.permutations(found))), Parameters(end, below, NOW, NOW + draw(st.sampled_from((0, 5)))))


def column(records: Sequence[Record], name: str) -> np.ndarray:
    return np.array([getattr(one, name) for one in records], dtype=np.bool_)


def judged(case: Case) -> list[tuple[Record, Outcome, int | None]]:
    """Outcome and horizon of every record by the rules, asked level by level."""
    codes = np.array([one.key if one.competes and one.key is not None else NO_KEY for one in case.records], np.int64)
    offsets = np.array([one.offset for one in case.records], np.int64)
    newest, has_older = latest_per_key(codes, offsets, column(case.records, "removed"))
    # A plan that may hold records of transactions is told of all three states, any other of none.
    has_transactions = any(one.control or one.aborted for one in case.records)
    told = ("repeated", "control", "aborted", "ended") if has_transactions else ("repeated",)
    newest |= (codes == NO_KEY) & column(case.records, "noise")
    found: list[tuple[Record, Outcome, int | None]] = []
    for level, removed in {(one.level, one.removed) for one in case.records}:
        rows = [row for row, one in enumerate(case.records) if (one.level, one.removed) == (level, removed)]
        own = [case.records[row] for row in rows]
        asked = Records(
            offset=offsets[rows],
            keyless=np.array([one.key is None for one in own], np.bool_),
            newest=newest[rows],
            has_older=has_older[rows],
            tombstone=column(own, "tombstone"),
            horizon=np.array([NO_HORIZON if one.horizon is None else one.horizon for one in own], np.int64),
            level=level,
            **{name: column(own, name) for name in told},
            removed_before=removed,
        )
        stamps = [None if one == NO_HORIZON else one for one in horizons(asked, case.plan).tolist()]
        found += zip(own, map(Outcome, outcomes(asked, case.plan).tolist()), stamps, strict=True)
    return found


@given(cases())
@example(Case((Record(8, None), Record(9, None)), Parameters(9, None, NOW, NOW))).via("rare among those that are drawn")
def test_c2_to_c5_c7_to_c10_every_record_meets_the_fate_that_the_contract_says(case: Case) -> None:
    for one, outcome, horizon in judged(case):
        assert outcome is case.fate(one), one
        if outcome in WRITTEN:
            assert horizon == case.stamp(one), one


@pytest.mark.parametrize(("per_ms", "now", "stamp"), [(1, 50, 57), (1000, 50_000, 57_000)])
def test_c8_horizons_are_asked_for_in_the_unit_of_the_column(per_ms: int, now: int, stamp: int) -> None:
    plan = plans.example(now_ms=50, clean_below=4, rules={"delete.retention.ms": "7"})
    assert Parameters.of(plan, per_ms) == Parameters(9, 4, now, stamp)


KEYS = (b"", b"a", b"aa", b"b")
Rows = list[tuple[int, int, bool]]
"""Code of the key, offset, and whether it was removed before."""


@st.composite
def rows(draw: st.DrawFn, least: int = NO_KEY) -> Rows:
    """Records in any order; a removed tombstone may have the offset of anything."""
    codes = st.integers(least, 3)
    offsets = draw(st.lists(st.integers(0, 40), unique=True, max_size=30))
    found = [(draw(codes), offset, False) for offset in offsets]
    again = draw(st.lists(st.tuples(codes, st.integers(0, 40)), unique=True, max_size=10))
    found += [(code, offset, True) for code, offset in again]
    return sorted(found, key=lambda row: row[1]) if draw(st.booleans()) else draw(st.permutations(found))


def naive(found: Rows) -> tuple[list[bool], list[bool]]:
    present: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for code, offset, removed in found:
        (gone if removed else present).setdefault(code, []).append(offset)
    newest, has_older = [], []
    for code, offset, removed in found:
        own = present.get(code, [])
        others = own + gone.get(code, []) if own and max(gone.get(code, [-1])) > max(own) else own
        counts = code != NO_KEY and bool(others)
        newest.append(counts and offset == max(others) and removed == (offset not in own))
        has_older.append(counts and any(one < offset for one in own))
    return newest, has_older


def columns(found: Rows) -> list[np.ndarray]:
    return [np.array([row[at] for row in found], kind) for at, kind in enumerate((np.int64, np.int64, np.bool_))]


@given(rows())
def test_c2_c9_the_newest_of_each_key_and_removed_tombstones_count_where_a_record_is_back(found: Rows) -> None:
    newest, has_older = latest_per_key(*columns(found))
    assert (newest.tolist(), has_older.tolist()) == naive(found)


@settings(max_examples=40)
@given(rows(least=0))
def test_c2_c9_keys_on_disk_are_compared_as_those_in_memory(found: Rows) -> None:
    newest, has_older = latest_per_key(*columns(found))
    flags = np.zeros((2, len(found)), dtype=np.bool_)
    keys = pa.table(
        {
            "key": pa.array([KEYS[code] for code, _, _ in found], pa.binary()),
            "log_offset": pa.array([offset for _, offset, _ in found], pa.int64()),
            "place": pa.array(range(len(found)), pa.int64()),
            "removed": pa.array([removed for _, _, removed in found], pa.bool_()),
        }
    )
    with duckdb.connect() as engine:
        engine.register("keys", keys)
        for batch in engine.sql(survey.NEWEST).to_arrow_reader():
            places = batch["place"].to_numpy()
            flags[0][places] = True
            flags[1][places] = batch["has_older"].to_numpy(zero_copy_only=False)
    assert flags[0].tolist() == newest.tolist()
    assert flags[1].tolist() == (newest & has_older).tolist(), "of the others nobody asks"


def test_c26_damaged_keys_and_a_full_disk_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder can be made for what is spilled."""
    monkeypatch.setattr(survey, "MEMORY_BYTES", 1 << 20)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"%09d" % offset) for offset in range(100_000)])])
    with pytest.raises(UnavailableError, match=r"its keys can't be compared in .* now: .*try again later"):
        survey.on_disk(inputs)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"k") for offset in range(10)])])
    damage_keys(inputs)
    with pytest.raises(RefusedError, match=Path(inputs.segments[0].path).name):
        survey.on_disk(inputs)


def test_c10_a_record_without_a_producer_is_never_decided() -> None:
    rows = pa.Table.from_pylist([{"producer_id": None, "offset": 5}], schema=RECORDS)
    assert first_undecided(rows, last_of([])) == Undecided(5, None)


class Told(NamedTuple):
    """A record of ``producer`` (None: of no transaction), or a marker that commits or aborts."""

    producer: int | None
    commit: bool | None
    level: int


TOLD = st.lists(
    st.builds(
        Told,
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, None, None, True, False]),
        st.sampled_from([0, 1, 2, 3]),
    ).filter(lambda event: event.producer is not None or event.commit is None),
    max_size=14,
)


def told(events: list[tuple[int, Told]], markers: list[Marker]) -> tuple[list[bool], list[bool]]:
    """The arrays' result for ``events`` (with their offsets)."""
    columns = {
        "control": [event.commit is not None for _, event in events],
        "transactional": [event.producer is not None for _, event in events],
        "producer": [event.producer or 0 for _, event in events],
        "ends": [-1 if event.commit is None else int(event.commit) for _, event in events],
    }
    records = pa.table(columns, transactions.SCHEMA).append_column(
        "offset", pa.array((at for at, _ in events), pa.int64())
    )
    levels = np.array([event.level for _, event in events], dtype=np.int64)
    _, aborted, ended = transactions.states(records, levels, markers)
    return aborted.tolist(), ended.tolist()


@given(TOLD, st.lists(st.tuples(st.sampled_from([1, 2]), st.booleans()), max_size=3))
def test_c10_a_record_goes_by_the_next_marker_of_its_producer(
    events: list[Told], outside: list[tuple[int, bool]]
) -> None:
    placed = list(enumerate(events))
    markers = [Marker(producer, len(events) + place, commit) for place, (producer, commit) in enumerate(outside)]
    aborted, ended = told(placed, markers)
    ends = [(one.offset, one.producer_id, one.commit) for one in markers]
    inside = [(at, event.producer, event.commit) for at, event in placed]
    ends += [(at, producer, commit) for at, producer, commit in inside if producer is not None and commit is not None]
    for at, event in placed:
        following = sorted(one for one in ends if one[1] == event.producer and one[0] > at)
        is_record = event.commit is None and event.producer is not None
        assert aborted[at] == bool(is_record and event.level < 2 and following and not following[0][2])
        before = [other for other in placed[:at] if other[1].producer == event.producer]
        has_records = bool(before) and before[-1][1].commit is None
        assert ended[at] == (event.commit is not None and not has_records)


def test_c10_a_marker_that_is_known_twice_is_one() -> None:
    """The plan names markers outside its inputs; a copy of one may be among the inputs."""
    events = [(0, Told(1, None, 0)), (1, Told(1, commit=False, level=0))]
    assert told(events, [Marker(1, 1, commit=False)]) == ([True, False], [False, False])
