"""What becomes of a record (C2 to C5, C7 to C10): a table, and the contract's sentences beside random plans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firnlake.compact.keep_or_drop import NO_HORIZON, WRITTEN, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.keys import latest_per_key
from firnlake.iceberg.keys import NO_KEY
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL
from tests.support import plans

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
        alone = replace(asked, control=None, aborted=None, ended=None, repeated=None)
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
    plan = plans.example(now_ms=50, clean_below=4, delete_retention_ms=7)
    assert Parameters.of(plan, per_ms) == Parameters(9, 4, now, stamp)
