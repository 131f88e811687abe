"""Faults: at the n-th call of one kind that a process makes to its catalog or its store."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import Self

_TO_CATALOG = {"load_table": 50, "commit_table": 4}
"""Calls of the catalog, and how many a run of a few lanes makes."""
_ICEBERG_READS = {"open metadata": 50, "open list": 20, "open manifest": 40}
_ICEBERG_WRITES = {"write metadata": 3, "write list": 5, "write manifest": 10}
_ICEBERG_DELETES = {"delete list": 1, "delete manifest": 1}
"""The same of the store, for Iceberg's own files: the table's metadata, lists of manifests, manifests."""
_READS = {"open data": 32, "open plans": 10, "open result": 8, "open verdicts": 4, "open staged manifest": 8}
_WRITES = {"write data": 6, "write plans": 2, "write staged manifest": 2, "write result": 2, "write verdicts": 2}
_RARE_WRITES = {"write split": 1, "write failure": 1, "write abandoned": 1, "write other": 2}
_DELETES = {f"delete {kind}": 2 for kind in ("data", "plans", "result", "verdicts", "staged manifest", "abandoned")}
_READS_MARKS, _WRITES_MARKS, _DELETES_MARKS = {"open marks": 4}, {"write marks": 2}, {"delete marks": 2}
_LISTS = {"list documents": 40, "list staged": 10}
"""Of files of Firn's: the data and the documents of jobs, also those that say what went wrong, the manifests that their
results lie in, and the marks of records, which only large plans have. Others are lists of the plans of a commit."""

CATALOG = frozenset(_TO_CATALOG)


class Kind(StrEnum):
    """The ways in which a call fails."""

    KILL = "kill"
    """SIGKILL, before or after the call is carried out."""
    LOST_REQUEST = "lost request"
    """The connection breaks before the catalog heard anything."""
    LOST_ANSWER = "lost answer"
    """The catalog does what it was asked, and the connection breaks before it says so."""
    DOWN = "catalog down"
    """This call and some more are not answered."""
    BUSY = "catalog busy"
    """A SQL catalog that refuses to wait."""
    CONFLICT = "lost race"
    """The catalog refuses a commit."""
    SLOW = "slow"
    """The answer takes a while."""
    BROKEN_STORE = "store error"
    """The store answers with an I/O error."""
    FULL = "disk full"
    """Half of a file is written."""
    TORN = "killed while writing"
    """Half of a file is written, then SIGKILL."""
    PAUSE = "pause"
    """The process stops there until somebody else has done something (see ``Intruder``)."""


_COMMITS = {"commit_table": 4}
_ALL_READS = _ICEBERG_READS | _READS | _READS_MARKS
_ALL_WRITES = _ICEBERG_WRITES | _WRITES | _RARE_WRITES | _WRITES_MARKS
_ALL_DELETES = _ICEBERG_DELETES | _DELETES | _DELETES_MARKS
CALLS = {
    Kind.KILL: _TO_CATALOG | _ALL_WRITES | _ALL_DELETES,
    Kind.LOST_REQUEST: _TO_CATALOG,
    Kind.LOST_ANSWER: _COMMITS,
    Kind.DOWN: _TO_CATALOG,
    Kind.BUSY: _TO_CATALOG,
    Kind.CONFLICT: _COMMITS,
    Kind.SLOW: _TO_CATALOG | _ALL_READS | _ALL_WRITES,
    Kind.BROKEN_STORE: _ALL_READS | _ALL_WRITES | _ALL_DELETES | _LISTS,
    Kind.FULL: _ALL_WRITES,
    Kind.TORN: _ALL_WRITES,
    Kind.PAUSE: _TO_CATALOG | _ALL_WRITES | _ALL_DELETES | _LISTS,
}
"""Calls that each kind can hit, and their number."""


class Intruder(StrEnum):
    """The processes that intervene while a process stands still."""

    APPENDER = "appender"
    COMPACTOR = "compactor"
    """Another process that does the very same run."""
    SWEEPER = "sweeper"
    """Another process for whose clock everything here is long dead."""
    COLLECTOR = "collector"
    """Likewise, and it takes files as well that no snapshot refers to."""
    SECOND_TRY = "sweeper, then the same run"
    """A job that was taken for dead is discarded, and done again under the same name."""
    STANDING_SWEEPER = "sweeper that stands still"
    """It stands still as well, at any of its calls, until the other process has ended."""
    STANDING_COLLECTOR = "collector that stands still"
    REWRITE = "rewrite_data_files"
    EXPIRE = "expire_snapshots"
    ORPHANS = "remove_orphan_files"
    DELETE = "delete"
    SCHEMA = "schema change"


STANDING = (Intruder.STANDING_SWEEPER, Intruder.STANDING_COLLECTOR)
DELETING = (Intruder.SWEEPER, Intruder.COLLECTOR, Intruder.SECOND_TRY, *STANDING)
"""Those who delete what a process that stands still has staged."""
BETWEEN = (
    ("load_table", 30),
    ("list documents", 16),
    ("list staged", 4),
    ("open list", 6),
    ("open manifest", 6),
    ("write abandoned", 1),
    ("write list", 1),
    ("commit_table", 1),
    ("delete data", 2),
    ("delete marks", 1),
    ("delete plans", 1),
    ("delete result", 1),
    ("delete abandoned", 1),
)
"""Calls at which a sweeper or a collector stands still, and their number."""


@dataclass(frozen=True)
class Fault:
    """The ``nth`` call (from 1) that is ``call`` fails as ``kind``; with ``after`` it is carried out first.

    ``length`` is how many calls DOWN, BUSY and CONFLICT last. ``intruder`` acts during a PAUSE.
    """

    kind: Kind
    call: str
    nth: int
    after: bool = False
    length: int = 1
    intruder: Intruder | None = None

    @classmethod
    def draw(cls, random: Random) -> Self:
        """Any fault; those at a call that a run does not come to never happen."""
        if random.random() < 0.15:
            return cls.between_check_and_write(random)
        kind = random.choice([*Kind, Kind.KILL, Kind.KILL, Kind.PAUSE, Kind.PAUSE, Kind.LOST_ANSWER])
        call, count = random.choice(list(CALLS[kind].items()))
        return cls(
            kind,
            call,
            random.randint(1, count),
            kind is Kind.KILL and random.random() < 0.5,
            random.choice([1, 2, 5]),
            random.choice(list(Intruder)) if kind is Kind.PAUSE else None,
        )

    @classmethod
    def between_check_and_write(cls, random: Random) -> Self:
        """Somebody deletes what a process has just seen to be there: a publisher stands still between its check and its
        commit, a compactor between its last data file and its result, or a task that is about to read its marks."""
        call = random.choice(["commit_table", "write list", "write result", "write staged manifest", "open marks"])
        return cls(Kind.PAUSE, call, random.choice([1, 1, 2]), intruder=random.choice(DELETING))

    @classmethod
    def standing_still(cls, random: Random) -> Self:
        """A pause of a sweeper, or of a collector, that ends when whoever got in between has ended."""
        call, count = random.choice(BETWEEN)
        return cls(Kind.PAUSE, call, random.randint(1, count))

    @property
    def lasts(self) -> bool:
        """True when several calls can fail."""
        return self.kind in (Kind.DOWN, Kind.BUSY, Kind.CONFLICT)

    @property
    def cuts(self) -> bool:
        """True when a file is cut off half-way."""
        return self.kind in (Kind.FULL, Kind.TORN)

    @classmethod
    def read(cls, text: str) -> Self:
        """The fault that ``as_json`` wrote."""
        found = json.loads(text)
        intruder = found.pop("intruder")
        return cls(**found | {"kind": Kind(found["kind"]), "intruder": Intruder(intruder) if intruder else None})

    def as_json(self) -> str:
        """For a property of a catalog, which is a string."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        when = "after" if self.after else "at"
        more = f", {self.length} calls" if self.lasts else ""
        return f"{self.kind} {when} {self.call} {self.nth}{more}" + (f": {self.intruder}" if self.intruder else "")
