"""Firn's errors and the form of their messages (contract C26); text from outside is escaped in them."""

from typing import Any


class FirnError(Exception):
    """Base of every error that Firn raises on purpose; anything else is a defect.

    The message is one printable line, whatever characters a table's names contain.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with its fields, whatever arguments its class takes, because workers send errors back."""
        return _revived, (type(self), self.args, self.__dict__)


class RefusedError(FirnError):
    """The input is not allowed as it is. Another try without a change gives the same answer."""


class GoneError(RefusedError):
    """The table ``identifier`` does not exist or is unreadable."""

    def __init__(self, identifier: str, message: str) -> None:
        super().__init__(message)
        self.identifier = identifier


class NotFoundError(GoneError):
    """The catalog has no such table."""


class ConflictError(FirnError):
    """The table changed under a plan, which must be made again (C22). The target table was not touched."""

    exit_code = 3


class UnavailableError(FirnError):
    """A catalog or store did not answer. Nothing was changed; a later retry is safe."""

    exit_code = 4


class OutcomeUnknownError(FirnError):
    """The catalog did not confirm or reject a commit. Everything is kept; the next run finds out."""

    exit_code = 5


def _revived(kind: type[FirnError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> FirnError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


def printable(text: str) -> str:
    """``text`` as one line that is safe to show in a terminal, log or page: unprintable characters are escaped.

    These are control characters (ESC among them), line ends, and marks that change the direction of text.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
