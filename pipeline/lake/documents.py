"""JSON documents beside a table's metadata, for what is too long for its properties.

Iceberg writes all properties and all snapshot summaries again at every commit, and every reader loads them.
"""

import hashlib

from pydantic import BaseModel, ConfigDict, ValidationError
from pyiceberg.table import Table

from pipeline.errors import RefusedError, UnavailableError


class Document(BaseModel):
    """Where a document lies and the SHA-256 (hex) of its UTF-8 text: this is what a property holds instead of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    location: str
    sha256: str

    @classmethod
    def write(cls, table: Table, folder: str, name: str, text: str) -> "Document":
        """Write ``text`` into ``folder``, with the store access of ``table``.

        Named by content, so that writing it twice is the same as writing it once.
        """
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        location = f"{folder}/{name}-{digest[:16]}.json"
        with table.io.new_output(location).create(overwrite=True) as stream:
            stream.write(content)
        return cls(location=location, sha256=digest)

    @classmethod
    def parse(cls, reference: str, subject: str) -> "Document":
        """The document that a property holds the reference of; RefusedError naming ``subject`` when it is none."""
        try:
            return cls.model_validate_json(reference)
        except ValidationError as error:
            raise RefusedError(f"{subject} is not readable: {error.errors()[0]['msg']}") from error

    def read(self, table: Table, subject: str) -> str:
        """The text; RefusedError naming ``subject`` when it is gone or is not what was written.

        UnavailableError when the store does not answer.
        """
        try:
            with table.io.new_input(self.location).open() as stream:
                content = stream.read()
        except FileNotFoundError as error:
            raise RefusedError(f"{subject}: {self.location} is gone; allowed: as it was written") from error
        except (IsADirectoryError, NotADirectoryError, ValueError) as error:
            # Whoever changed the reference may have put anything in it.
            raise RefusedError(f"{subject}: {self.location} is no document: {error}") from error
        except OSError as error:
            raise UnavailableError(f"{subject}: {self.location} can't be read: {error}") from error
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise RefusedError(
                f"{subject}: {self.location} has SHA-256 {found}; allowed: {self.sha256}, what was written"
            )
        return content.decode(errors="replace")
