"""JSON documents beside a table's metadata, for content too long for its properties.

Iceberg rewrites all properties and all snapshot summaries at every commit, and every reader loads them.
"""

import hashlib

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.table import Table

from pipeline.errors import RefusedError, UnavailableError


class Document(BaseModel):
    """Reference to a document, held by a property: its location and the SHA-256 (hex) of its UTF-8 text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    location: str
    sha256: str

    @classmethod
    def write(cls, table: Table, folder: str, name: str, text: str) -> "Document":
        """Write ``text`` into ``folder``, with the store access of ``table``.

        The name is derived from the content, so writing is idempotent.
        """
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        location = f"{folder}/{name}-{digest[:16]}.json"
        with table.io.new_output(location).create(overwrite=True) as stream:
            stream.write(content)
        return cls(location=location, sha256=digest)

    @classmethod
    def parse(cls, reference: str, subject: str) -> "Document":
        """Parse a property's ``reference`` to a document; RefusedError naming ``subject`` when it is none."""
        try:
            return cls.model_validate_json(reference)
        except ValidationError as error:
            raise RefusedError(f"{subject} is not readable: {error.errors()[0]['msg']}") from error

    def read(self, table: Table, subject: str) -> str:
        """Read the text; RefusedError naming ``subject`` when it is gone or differs from what was written.

        Raises UnavailableError when the store does not answer.
        """
        try:
            with table.io.new_input(self.location).open() as stream:
                content = stream.read()
        except FileNotFoundError as error:
            raise RefusedError(f"{subject}: {self.location} is gone; allowed: the document as Firn wrote it") from error
        except (IsADirectoryError, NotADirectoryError, ValueError) as error:
            # A reference that somebody changed may hold anything.
            raise RefusedError(f"{subject}: {self.location} is not a document: {error}") from error
        except OSError as error:
            raise UnavailableError(f"{subject}: {self.location} can't be read: {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise RefusedError(
                f"{subject}: {self.location} has SHA-256 {digest}; allowed: {self.sha256}, what was written"
            )
        return content.decode(errors="replace")
