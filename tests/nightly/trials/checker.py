"""What must hold whatever happens (I1 to I6 of the trials); imports nothing of Firn, and looks after every step."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyiceberg.table import CommitTableResponse
from pyiceberg.table.snapshots import Snapshot

from tests.nightly.trials.files import KEPT, Files, Reach, jobs_twice, line_of, on_disk
from tests.nightly.trials.gate import TrialCatalog, TrialRequest
from tests.nightly.trials.model import EMPTY, Branches, Line, unsettled, wrong
from tests.support.faults import Request
from tests.support.records import DAY

if TYPE_CHECKING:
    from tests.nightly.trials.world import Ended, World

QUARANTINE: Final = "firn_quarantine"
REMOVED_TOMBSTONES: Final = "firn_tombstones"
YOUNG: Final = 3 * DAY
"""The age, by the store's clock, up to which maintenance leaves a job alone."""


class Violation(NamedTuple):
    """A promise that was seen broken: its invariant (I1 to I6 of the trials), what in a few words, and the details."""

    invariant: str
    what: str
    """The same for all seeds that show the same defect: no path, no number."""
    details: str = ""

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}{': ' if self.details else ''}{self.details}"


@dataclass
class Checker:
    """The state that is needed to tell what is wrong, and what was found."""

    world: "World"
    violations: list[Violation] = field(default_factory=list)
    files: Files = field(default_factory=Files)
    lines: dict[int, Line] = field(default_factory=dict)
    """What main shows, by snapshot."""
    halves: set[int] = field(default_factory=set)
    """Snapshots on main that no reader saw, because the same commit put another on top."""
    by_firn: set[int] = field(default_factory=set)
    """Snapshots on main that Firn has added."""
    pointer: str = ""
    """The metadata file that the catalog names."""
    elsewhere: str = ""
    """The metadata file that a second catalog names, from its first commit on."""
    named: set[str] = field(default_factory=set)
    """Paths that the catalog's word has ever reached."""
    deleted: set[str] = field(default_factory=set)
    """Reached paths whose deletion was told already."""
    expired: set[str] = field(default_factory=set)
    """Paths that lost their last reference by Firn's hand, which has to delete them; the store has lied about none."""
    refs: set[str] = field(default_factory=set)
    """Branches and tags before the last commit: one that comes right before Firn's may go with its snapshot."""
    orphans_may_go: bool = False
    """The operator's word: orphans in firn.maintenance."""
    requested: dict[tuple[int, bytes], int] = field(default_factory=dict)
    """The offset below which records of a key are to be erased."""
    step: str = ""
    unreadable: bool = False
    """True once a file of the current snapshot is gone: nothing more can be told."""

    def found(self, invariant: str, what: str, details: object = "") -> None:
        """Note a violation, once for each ``what``."""
        if not any((one.invariant, one.what) == (invariant, what) for one in self.violations):
            self.violations.append(Violation(invariant, what, str(details)))

    # Commits and deletions, at their moment.

    def committed(self, request: Request, response: CommitTableResponse) -> None:
        """The catalog has applied a request."""
        assert isinstance(request, TrialRequest)
        assert isinstance(request.catalog, TrialCatalog)
        former, self.pointer = self.pointer, response.metadata_location
        if former:
            self._numbers(self.files.document(former), self.metadata)
        added = request.onto_main
        if request.catalog.by_firn:
            self.by_firn |= {one.snapshot_id for one in added}
            self._balance(self.metadata, added)
            if former:
                self.expired |= self.files.reach(former).keys() - self.files.reach(self.pointer).keys()
                if gone := self.refs & self._refs(former) - self._refs(self.pointer):
                    self.found("I2", f"{self.step} takes away a branch or tag", sorted(gone))
        self.refs = self._refs(former) if former else set()
        if added:
            base = self.lines.get(added[0].parent_snapshot_id or 0, EMPTY)
            self.halves |= {one.snapshot_id for one in added[:-1]}
            self.lines[added[-1].snapshot_id] = request.effect(base)
        self.named |= self.files.reach(self.pointer).keys()

    def _refs(self, location: str) -> set[str]:
        return set(self.files.document(location).get("refs", {}))

    def _numbers(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        if after["last-sequence-number"] < before["last-sequence-number"]:
            self.found("I3", f"last-sequence-number falls in {self.step}")

    def _balance(self, metadata: dict[str, Any], added: Sequence[Snapshot]) -> None:
        """C24: what a commit says of its records is what it did to their number."""
        summaries = {one["snapshot-id"]: one.get("summary", {}) for one in metadata["snapshots"]}
        for one in added:
            told, before = summaries[one.snapshot_id], summaries.get(one.parent_snapshot_id, {})
            if "firn.records-in" in told and "total-records" in before:
                signs = {"records-out": 1, "restored": 1, "records-in": -1, "deleted": -1}
                change = sum(sign * int(told.get(f"firn.{name}", 0)) for name, sign in signs.items())
                if int(told["total-records"]) - int(before["total-records"]) != change:
                    self.found("I3", "the counts of a commit are wrong", told)

    def deleting(self, path: str) -> None:
        """A file is about to go by Firn's hand (I2)."""
        for who, reach in self._reaches():
            if path in reach:
                self.deleted.add(path)
                self.found("I2", f"{self.step} deletes a {reach[path].kind} that {who} reaches", path)
        if not (path in self.named or _is_firns(path) or path.endswith(".metadata.json") or self.orphans_may_go):
            self.found("I2", f"{self.step} deletes a file that was never named", path)
        if Path(path).parent.name in KEPT:
            self.found("I2", f"{self.step} deletes a document that stays", path)
        ends_job = self.step == "maintain" and path.endswith("/plans.json")
        is_young = self.world.store.time_of(path) > self.world.now - YOUNG
        if ends_job and is_young and self.files.may_be_published(self.metadata, self.head, path):
            self.found("I2", "maintain ends a young job that may still be published", path)
        if not path.startswith(self.folder):
            self.found("I2", f"{self.step} deletes a file outside the table's folder", path)

    # After each step.

    def look(self, step: str, ended: "Ended") -> None:
        """Everything that can be told after a step of Firn."""
        self._told(step, ended)
        self._whole()
        if not self.unreadable:
            self._once()
            self._content()

    def landed(self, batch: int, ended: "Ended", *, answered: bool) -> None:
        """An acknowledged landing is there, and one is acknowledged if all but one of its requests are ``answered``."""
        if ended.how == "done" and batch not in self.line.batches:
            self.found("I3", "an acknowledged landing is not there")
        if answered and ended.how != "done":
            self.found("I3", "a landing fails although the catalog answers again", ended.said)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the catalog says now."""
        return self.files.document(self.pointer)

    @property
    def folder(self) -> str:
        """The table's folder, with a slash at its end."""
        return f"{on_disk(self.metadata['location'])}/"

    @property
    def head(self) -> int | None:
        """Main's snapshot."""
        main: int | None = self.metadata.get("refs", {}).get("main", {}).get("snapshot-id")
        return main

    @property
    def line(self) -> Line:
        """What main shows now."""
        return self.lines.get(self.head or 0, EMPTY)

    def _told(self, step: str, ended: "Ended") -> None:
        """I6: whatever ends a step is told in one line that names the table."""
        if ended.how == "crashed":
            kind = ended.said.partition(":")[0]
            self.found("I6", f"{step} crashes with {kind}", ended.said)
        elif ended.how in ("refused", "conflict") and "shop." not in ended.said:
            self.found("I6", f"{step} is {ended.how} without the table's name", ended.said)

    def _reaches(self) -> Iterator[tuple[str, Reach]]:
        """What each catalog's word reaches."""
        yield "main", self.files.reach(self.pointer)
        if self.elsewhere:
            yield "a second catalog", self.files.reach(self.elsewhere)

    def _whole(self) -> None:
        """I1: what each catalog's word reaches is there with its length."""
        for who, path, file in ((who, *one) for who, reach in self._reaches() for one in reach.items()):
            where = Path(path)
            there = where.exists()
            if there and file.length in (None, where.stat().st_size):
                continue
            self.unreadable = True
            if path not in self.deleted:
                what = "has another length" if there else "is gone"
                self.found("I1", f"a {file.kind} that {who} reaches {what}", path)

    def _once(self) -> None:
        """I3: each append is there at most once, and each job."""
        times = Counter(self.line.batches)
        if twice := [batch for batch, count in times.items() if count > 1]:
            self.found("I3", "an append is there twice", twice)
        own = [one for one in line_of(self.metadata) if one["snapshot-id"] in self.by_firn]
        if twice_jobs := jobs_twice(own):
            self.found("I3", "a job is there twice", twice_jobs)

    def branches(self) -> Branches:
        """What readers of main and of Firn's side branches see."""
        metadata = self.metadata
        removed = self.files.rows(metadata, self._memory_on(REMOVED_TOMBSTONES))
        return Branches(self.files.on(metadata, "main"), self.files.on(metadata, QUARANTINE), removed)

    def _memory_on(self, branch: str) -> int | None:
        """Id of the branch's snapshot that belongs to main's line: the newest name on the line says which; without a
        name, what an expiry has named on top of it; else it is the newest that is older than the line."""
        line, everything = list(line_of(self.metadata)), self.metadata.get("snapshots", [])
        ids = {one["snapshot-id"] for one in line}
        numbers = {one["snapshot-id"]: one["sequence-number"] for one in everything}
        on_top = [one for one in everything if one.get("parent-snapshot-id") in ids and one["snapshot-id"] not in ids]
        for one in (*line, *on_top):
            named = int(one.get("summary", {}).get("firn.memory", -1))
            if named == 0 or (named in numbers and (one in line or numbers[named] < one["sequence-number"])):
                return named or None
        number = line[-1]["sequence-number"] if line else 0
        own = (one for one in everything if one.get("summary", {}).get("firn.branch") == branch)
        older = {one["sequence-number"]: one["snapshot-id"] for one in own if one["sequence-number"] < number}
        return older[max(older)] if older else None

    def _content(self) -> None:
        """I4: what readers see is what the model says."""
        for what, details in wrong(self.line, self.branches(), self.requested):
            self.found("I4", what, details)

    def settled(self, blocked: Sequence[str]) -> None:
        """I4, once everything has been cleaned and nothing is under way; ``blocked`` is what could not be."""
        if blocked:
            self.found("I4", "a healthy topic partition is blocked", blocked[0])
        if not self.unreadable:
            for what, details in unsettled(self.line, self.branches(), self.requested, self.world.now):
                self.found("I4", what, details)

    def leftovers(self, older_than: int, time_of: Any) -> None:
        """I5: nothing is left past its age of what is Firn's own or Firn has expired, and nothing at all where orphans
        may go."""
        for path in self.files.unreached(self.pointer):
            goes = _is_firns(path) or path in self.expired or self.orphans_may_go
            if goes and time_of(path) < older_than:
                self.found("I5", f"a {_kind(path)} that nothing reaches is left", path)


def _is_firns(path: str) -> bool:
    """True for a file in a folder of Firn's own."""
    return "/_firn/" in path


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    if _is_firns(path):
        return "file of Firn's own"
    if name.endswith(".metadata.json"):
        return "metadata file"
    return "manifest or list" if name.endswith(".avro") else "data file"
