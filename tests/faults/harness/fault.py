"""What goes wrong, and where: at the n-th call of one kind that a process makes to its catalog or its store."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import Self

_TO_CATALOG = {
    "load_table target": 40,
    "load_table stage": 70,
    "load_table quarantine": 4,
    "load_table tombstones": 4,
    "list_tables namespace": 10,
    "table_exists stage": 4,
    "table_exists quarantine": 3,
    "table_exists tombstones": 6,
    "register_table stage": 2,
    "register_table quarantine": 1,
    "register_table tombstones": 1,
    "drop_table stage": 2,
    "commit_table stage": 15,
    "commit_table target": 3,
    "commit_table quarantine": 1,
    "commit_table tombstones": 1,
}
"""Calls of the catalog, the method and what the table is to Firn, and how many a run of a few lanes makes."""
_READS = {"open metadata": 60, "open list": 24, "open manifest": 60, "open data": 32, "open other": 20}
_WRITES = {"write metadata": 24, "write list": 8, "write manifest": 20, "write data": 12, "write other": 8}
"""The same of the store; lists, manifests and metadata are Iceberg's files, others Firn's. Data is what tasks
read and write, and what is copied to the tables beside."""

CATALOG = frozenset(_TO_CATALOG)


class Kind(StrEnum):
    """How a call fails."""

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


_CHANGES = {call: count for call, count in _TO_CATALOG.items() if call.startswith(("register", "drop", "commit"))}
_COMMITS = {call: count for call, count in _TO_CATALOG.items() if call.startswith("commit")}
CALLS = {
    Kind.KILL: _TO_CATALOG | _WRITES,
    Kind.LOST_REQUEST: _TO_CATALOG,
    Kind.LOST_ANSWER: _CHANGES,
    Kind.DOWN: _TO_CATALOG,
    Kind.BUSY: _TO_CATALOG,
    Kind.CONFLICT: _COMMITS,
    Kind.SLOW: _TO_CATALOG | _READS | _WRITES,
    Kind.BROKEN_STORE: _READS | _WRITES,
    Kind.FULL: _WRITES,
    Kind.TORN: _WRITES,
    Kind.PAUSE: _TO_CATALOG | _WRITES,
}
"""Which calls each kind can hit, and how many of them there are."""


class Intruder(StrEnum):
    """Who gets in between while a process stands still."""

    APPENDER = "appender"
    COMPACTOR = "compactor"
    """Another process that does the very same run."""
    SWEEPER = "sweeper"
    """Another process for whose clock everything here is long dead."""
    REWRITE = "rewrite_data_files"
    EXPIRE = "expire_snapshots"
    ORPHANS = "remove_orphan_files"
    DELETE = "delete"
    SCHEMA = "schema change"


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

    @property
    def lasts(self) -> bool:
        """Whether it can be several calls that fail."""
        return self.kind in (Kind.DOWN, Kind.BUSY, Kind.CONFLICT)

    @property
    def cuts(self) -> bool:
        """Whether it is a file that is cut off half-way."""
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
