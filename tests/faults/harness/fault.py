"""What goes wrong, and where: at the n-th call of one kind that a process makes to its catalog or its store."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from random import Random
from typing import Self

NOWHERE = "nowhere"
"""No call has this name: a fault there never happens."""
CATALOG = (
    "load_table target",
    "load_table stage",
    "load_table quarantine",
    "load_table tombstones",
    "list_tables namespace",
    "table_exists stage",
    "register_table stage",
    "create_table quarantine",
    "create_table tombstones",
    "drop_table stage",
    "commit_table stage",
    "commit_table target",
    "commit_table quarantine",
    "commit_table tombstones",
)
"""Calls of the catalog: the method and what the table is to Firn."""
READS = ("open metadata", "open list", "open manifest", "open data", "open other")
WRITES = ("write metadata", "write list", "write manifest", "write other")
DELETES = ("delete metadata", "delete list", "delete manifest", "delete data", "delete other")
CHANGES = tuple(call for call in CATALOG if call.startswith(("register", "create", "drop", "commit")))


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


CALLS = {
    Kind.KILL: (*CATALOG, *WRITES, *DELETES),
    Kind.LOST_REQUEST: CATALOG,
    Kind.LOST_ANSWER: CHANGES,
    Kind.DOWN: CATALOG,
    Kind.BUSY: CATALOG,
    Kind.CONFLICT: tuple(call for call in CATALOG if call.startswith("commit")),
    Kind.SLOW: (*CATALOG, *READS, *WRITES),
    Kind.BROKEN_STORE: (*READS, *WRITES, *DELETES),
    Kind.FULL: WRITES,
    Kind.TORN: WRITES,
    Kind.PAUSE: (*CATALOG, *WRITES, *DELETES),
}
"""Which calls each kind can hit."""


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
        """Any fault; early calls more often than late ones, which many runs do not come to."""
        kind = random.choice([*Kind, Kind.KILL, Kind.KILL, Kind.PAUSE, Kind.PAUSE, Kind.LOST_ANSWER])
        return cls(
            kind,
            random.choice(CALLS[kind]),
            random.choice([1, 1, 1, 2, 2, 3, 4, 6]),
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
