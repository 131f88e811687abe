"""The rule that keeps a record in the table, in words; the rules themselves (``Cleaning``) say what a plan does."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pipeline.compact.outcome import Outcome
from pipeline.explain.cleaning import Cleaning, KeyRecords
from pipeline.explain.holds import Prospects, taken
from pipeline.explain.reason import Reason
from pipeline.explain.versions import Version
from pipeline.sense import Lane
from pipeline.sense.searches import obstacles


@dataclass(frozen=True)
class Keeping:
    """Explains why the records of one key are in one topic partition, given what each lane would take of it now."""

    of_key: KeyRecords
    prospects: Prospects

    def reason(self, place: int) -> Reason:
        """The rule that keeps the ``place``-th present record now, and what must happen before it goes."""
        version = self.of_key.present[place]
        if version.offset < self.of_key.erased_below:
            return self._to_be_erased(version)
        for lane, cleaning in self._due.items():
            if going := _going(version, place, cleaning):
                does = "hides" if lane is Lane.MASK else "removes"
                return Reason(going.rule, f"{going.text}; the next {lane} {does} it, and is due")
        if not self.prospects.state.policy.compacts:
            return Reason("C19", "within the retention of its topic, which is not compacted")
        if self._full and (going := _going(version, place, self._full)):
            return Reason(going.rule, f"{going.text}; the next full removes it, and is not due")
        held = self.prospects.held(version.path)
        if self.of_key.is_aborted(version):
            assert held  # otherwise full would take it
            return _but_held(_aborted(version), held)
        if newer := self.of_key.newer(version):
            return _but_held(f"superseded by offset {newer[0].offset}", held) if held else self._not_yet(newer[0])
        if held and any(one.place == version.place for one in self.of_key.present if one is not version):
            return _but_held("written more than once", held)
        if self.of_key.has_key and not version.tombstone:
            return Reason("C3", "the newest record of its key")
        what = "a tombstone" if self.of_key.has_key else "without a key"
        if version.offset >= self.prospects.state.kept_from:
            has = "has" if self.prospects.state.kept_from == self.prospects.state.log_end_offset else "may have"
            return Reason(
                "C4", f"{what}, but it {has} the highest offset of its topic partition: readers rely on the log end"
            )
        if held:
            return Reason(held.rule, f"{what}; its segment {held.text}", held.until_ms)
        assert self._full  # otherwise its segment would be held
        return _tombstone(version, place, self._full)

    def _to_be_erased(self, version: Version) -> Reason:
        what = "its key is to be erased"
        in_the_way = next((one for one in obstacles(self.prospects.state) if one.offset <= version.offset), None)
        if in_the_way:
            return Reason(in_the_way.rule, f"{what}, but {in_the_way.why}", in_the_way.until_ms)
        if Lane.ERASE in self.prospects.due:
            return Reason("C30", f"{what}; the next erase removes it, and is due")
        held = self.prospects.not_due(Lane.ERASE)
        return Reason(held.rule, f"{what}; {held.text}", held.until_ms)

    @cached_property
    def _due(self) -> Mapping[Lane, Cleaning]:
        return {lane: Cleaning.of(self.of_key, plan) for lane, plan in self.prospects.due.items()}

    @cached_property
    def _full(self) -> Cleaning | None:
        plan = None if Lane.FULL in self.prospects.failed else self.prospects.full
        return Cleaning.of(self.of_key, plan) if plan else None

    def _not_yet(self, newer: Version) -> Reason:
        held = self.prospects.held(newer.path)
        assert held  # otherwise full would take both
        text = "no cleanable record supersedes it: offset {} does not yet, because its segment {}"
        return Reason(held.rule, text.format(newer.offset, held.text), held.until_ms)


def _going(version: Version, place: int, cleaning: Cleaning) -> Reason | None:
    """The reason why the plan removes ``version``; None when it does not."""
    if cleaning.plan.lane is Lane.RETAIN and version.path in taken(cleaning.plan):
        return Reason("C19", "past the retention of its topic")
    outcome = cleaning.outcome(place)
    if cleaning.plan.lane is Lane.MASK:
        newest = cleaning.survivor
        below = newest is not None and not newest.stamped and version.offset < newest.offset
        hidden = below and outcome in (Outcome.SUPERSEDED, Outcome.REPEATED)
        outcome = Outcome.SUPERSEDED if hidden else Outcome.KEPT
    match outcome:
        case Outcome.SUPERSEDED:
            assert cleaning.survivor  # a superseded record implies a survivor
            offset, comes_back, _ = cleaning.survivor
            return Reason("C2", f"superseded by offset {offset}{', a removed tombstone that is restored' * comes_back}")
        case Outcome.TOMBSTONE_REMOVED:
            return Reason("C9", "a tombstone whose delete horizon has passed")
        case Outcome.QUARANTINED:
            return Reason("C5", "without a key, so it is quarantined")
        case Outcome.ABORTED:
            return Reason("C10", _aborted(version))
        case Outcome.REPEATED:
            return Reason("C1", "written more than once: another copy is kept, if it is identical")
    return None


def _but_held(text: str, held: Reason) -> Reason:
    return Reason(held.rule, f"{text}, but its segment {held.text}", held.until_ms)


def _aborted(version: Version) -> str:
    return f"of an aborted transaction of producer {version.producer_id}"


def _tombstone(version: Version, place: int, full: Cleaning) -> Reason:
    """The stage (of two, KIP-534) in which a tombstone that is the newest record of its key waits."""
    older = full.supersedes(place)
    if older is not None:
        return Reason(
            "C9", f"a tombstone that supersedes offset {older}: its delete horizon starts when that record is removed"
        )
    if full.waits_for_clock(place):
        return Reason("C9", "a tombstone before its delete horizon", version.delete_horizon_ms)
    if full.stamps(place):
        return Reason("C8", "a tombstone without a delete horizon: the next full stamps it")
    text = f"a tombstone that is not clean: older offsets, from {full.plan.clean_below}, wait outside full"
    return Reason("C7", text)
