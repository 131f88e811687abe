"""The column mapping of an adopted table: the table property ``firn-columns``.

It holds field ids, so a column may be renamed or moved; its names date from the adoption and serve messages and the
text of the tombstone condition.
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.types import NestedField

from pipeline.errors import RefusedError

COLUMNS = "firn-columns"
"""Table property of an adopted table: its mapping, as JSON."""

RELEASED = "firn-released"
"""Table property of a released table that kept Firn's columns: its former mapping."""


class Column(BaseModel):
    """A column of the table: its field id, and its name at the time of adoption."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    name: str

    @classmethod
    def of(cls, field: NestedField) -> Self:
        return cls(id=field.field_id, name=field.name)


class Tombstone(BaseModel):
    """The condition that makes a record a tombstone, as given, and the columns that it names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    condition: str
    columns: tuple[Column, ...]


class Added(BaseModel):
    """Additions of an adoption to the table, which a release can remove again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[int, ...] = ()
    partition_fields: tuple[int, ...] = ()
    properties: tuple[str, ...] = ()


class ColumnMapping(BaseModel):
    """The document in the property ``firn-columns``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    key: tuple[Column, ...] = Field(min_length=1)
    offset: Column
    timestamp: Column | None
    topic: Column | None
    partition: Column | None
    topic_name: str
    """Topic of every record of a table without a topic column."""
    tombstone: Tombstone | None
    level: Column
    delete_horizon: Column
    added: Added
    levels_apart: bool = True
    """False where equality deletes must reach cleaned records: then the table is not partitioned by level."""

    @classmethod
    def parse(cls, text: str, identifier: str, name: str = COLUMNS) -> Self:
        """Parse the mapping from the property ``name`` of table ``identifier``."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(str(part) for part in problem["loc"]) or "the document"
            raise RefusedError(
                f"table {identifier}: property {name} is not readable: {place}: {problem['msg']}; allowed: what "
                "`firn adopt` writes"
            ) from error

    def roles(self) -> Iterator[tuple[str, Column]]:
        """Yield every mapped column with its role; the key's columns one by one."""
        yield from (("key", column) for column in self.key)
        named = {
            "offset": self.offset,
            "timestamp": self.timestamp,
            "topic": self.topic,
            "partition": self.partition,
            "level": self.level,
            "delete_horizon": self.delete_horizon,
        }
        yield from ((role, column) for role, column in named.items() if column)
