"""What can go wrong at a request to the catalog, at a load, and at a deletion; each is drawn from the trial's seed."""

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)
from sqlalchemy.exc import OperationalError


class Fate(StrEnum):
    """What becomes of one request to commit."""

    DROPPED = "dropped"
    FAILED = "delivered and failed"
    """Applied, and answered by an error."""
    TWICE = "delivered twice"
    """Applied and sent again; the caller hears of the second delivery alone."""
    AFTER_COMMITS = "held until after commits"
    AFTER_ROLLBACK = "held until after a rollback"
    AFTER_EXPIRY = "held until after an expiry"
    BESIDE = "another actor first"
    """Another writer commits right before it arrives."""
    KILLED = "killed after the commit"


HELD: Final = (Fate.AFTER_COMMITS, Fate.AFTER_ROLLBACK, Fate.AFTER_EXPIRY)


class Load(StrEnum):
    """Faults of one load of a table."""

    STALE = "load of the past"
    HEADS = "load of heads only"
    FAILS = "load fails"


class Meanwhile(StrEnum):
    """Calls right before which another actor does something, beside requests to commit."""

    LOAD = "another actor at a load"
    WRITE = "another actor at a write"
    DELETE = "another actor at a deletion"


class Deletion(StrEnum):
    """What becomes of one deletion."""

    FAILS = "delete fails once"
    LIES = "delete says yes and does nothing"
    KILLED_BEFORE = "killed before a delete"
    KILLED_AFTER = "killed after a delete"


def _broken() -> ConnectionError:
    return ConnectionError("the connection broke")


ANSWERS: Final[Mapping[str, Callable[[], Exception]]] = {
    "CommitFailed": lambda: CommitFailedException("branch main has changed"),
    "CommitStateUnknown": lambda: CommitStateUnknownException("504: gateway timeout"),
    "ServiceUnavailable": lambda: ServiceUnavailableError("503: try again"),
    "ServerError": lambda: ServerError("500: internal error"),
    "BadRequest": lambda: BadRequestError("400: bad request"),
    "ValueError": lambda: ValueError("sequence number is taken"),
    "ConnectionError": _broken,
    "OperationalError": lambda: OperationalError("COMMIT", None, _broken(), connection_invalidated=True),
}
"""The errors that catalogs and their clients answer with, none of which tells whether a commit was applied."""


def lost_store() -> OSError:
    """The error of a store that does not answer."""
    return OSError(errno.EIO, "the store answered 503")


@dataclass(frozen=True)
class Script:
    """The faults of one step of the product: each hits the request, load or deletion with that number, from 1."""

    commit: tuple[int, Fate, str, int] | None = None
    """Number, fate, answer, and for AFTER_COMMITS how many commits later it arrives."""
    load: tuple[int, Load, int] | None = None
    """Number, what is wrong, and for STALE how many commits ago."""
    deletion: tuple[int, Deletion] | None = None
    meanwhile: tuple[int, Meanwhile] | None = None

    @property
    def is_passing(self) -> bool:
        """True if nothing but a single request goes wrong, in a way that the next load of the table tells."""
        if self.load or self.deletion:
            return False
        return not self.commit or self.commit[1] in (Fate.DROPPED, Fate.FAILED, Fate.TWICE, Fate.BESIDE)


NOTHING: Final = Script()


def commit_fault(random: Random, fates: tuple[Fate, ...] = tuple(Fate)) -> Script:
    """A fault at one of the first requests to commit."""
    nth = random.choice((1, 1, 1, 2, 3))
    return Script(commit=(nth, random.choice(fates), random.choice(list(ANSWERS)), random.randint(1, 3)))


def load_fault(random: Random) -> Script:
    """A fault at one of the first loads."""
    return Script(load=(random.choice((1, 1, 2, 3, 4, 6)), random.choice(list(Load)), random.randint(1, 3)))


def deletion_fault(random: Random) -> Script:
    """A fault at one of the first deletions."""
    return Script(deletion=(random.choice((1, 1, 2, 3, 5, 8)), random.choice(list(Deletion))))


def meanwhile(random: Random) -> Script:
    """Another actor at one of the first calls of a kind, or before a request to commit."""
    what, most = random.choice(((Meanwhile.LOAD, 12), (Meanwhile.WRITE, 12), (Meanwhile.DELETE, 5), (None, 1)))
    if what is None:
        return commit_fault(random, (Fate.BESIDE,))
    return Script(meanwhile=(random.randint(1, most), what))
