"""What Firn refuses, and how it says so (contract C26).

Every message names the table, partition, segment or property, what was found, and what is allowed. The command line
prints it as one line and exits with ``exit_code``.
"""

from typing import Any

from pipeline.messages import printable


class FirnError(Exception):
    """Base of every error that Firn raises on purpose; anything else is a defect.

    Whatever a name from a table holds, the message is one line that a terminal or a log shows as it is.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors come back from workers: pickled with their fields, whatever arguments their class takes."""
        return _revived, (type(self), self.args, self.__dict__)


class RefusedError(FirnError):
    """The input cannot be worked on as it is. Trying again without a change gives the same answer."""


class GoneError(RefusedError):
    """The table ``identifier`` is not there, or nothing of it can be read."""

    def __init__(self, identifier: str, message: str) -> None:
        super().__init__(message)
        self.identifier = identifier


class NotFoundError(GoneError):
    """The catalog has no such table."""


class MetadataLostError(GoneError):
    """The catalog names a file that is gone, without which nothing of the table can be read any more."""


class ConflictError(FirnError):
    """The table moved on under a plan, which must be made again (C22). The target table was not touched."""

    exit_code = 3


class UnavailableError(FirnError):
    """A catalog or store did not answer. Nothing was changed; trying again later is safe."""

    exit_code = 4


class OutcomeUnknownError(FirnError):
    """The catalog did not say whether a commit was applied. Everything is kept; the next run finds out."""

    exit_code = 5


def _revived(kind: type[FirnError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> FirnError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error
