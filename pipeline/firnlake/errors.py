"""Firn's errors. Each message is one line, in which unprintable characters are escaped (contract C26)."""

import logging

from firnlake_expectations.wording import printable

log = logging.getLogger(__name__)


class FirnError(Exception):
    """Base of every error that Firn raises on purpose; any other exception is a defect.

    The message is one printable line, whatever characters a table's names contain.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class RefusedError(FirnError):
    """The input is not allowed. Another try without a change gives the same answer."""


class FailedError(RefusedError):
    """An unforeseen error ended a task. What the task was about waits, as after any refusal; all else goes on (C20)."""


class GoneError(RefusedError):
    """A table or a stage does not exist or is unreadable."""


class NotFoundError(GoneError):
    """The catalog has no such table."""


class ConflictError(FirnError):
    """The table has changed since a plan was made, so the plan must be made again (C22). Firn has changed nothing."""

    exit_code = 3


class UnavailableError(FirnError):
    """A catalog or store did not answer. Nothing was changed; a later retry is safe."""

    exit_code = 4


class LostError(UnavailableError):
    """The store has no such file. The table may have changed, so that a later try needs it no more, or it is lost."""


class OutcomeUnknownError(FirnError):
    """The catalog neither confirmed nor rejected a commit. All files are kept; the next run finds out what happened."""

    exit_code = 5


class WaitingError(FirnError):
    """Topic partitions wait for a person: some of their segments can't be cleaned, a transaction hangs, or their plan
    was refused. Or live files belong to no topic partition."""

    exit_code = 6


def contained(error: Exception, subject: str) -> FirnError:
    """``error`` if it is a FirnError; any other error of work on ``subject`` as the FirnError that ends only this work.

    An error of a disk or store may pass; anything else would most likely happen again.
    """
    if isinstance(error, FirnError):
        return error
    log.debug("%s", subject, exc_info=error)
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
    if isinstance(error, OSError):
        return UnavailableError(f"{subject}: {reason}; try again later")
    return FailedError(f"{subject}: {reason}; allowed: what Firn and its libraries can process")
