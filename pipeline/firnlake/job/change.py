"""What a plan does to its table: the files that go and come, by branch, and the counts of records.

Tasks return it, a document of the job keeps it, the judge judges it, and one commit publishes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from firnlake.iceberg.files import FrozenModel
from firnlake.job.plan import Plan
from firnlake.table.history import Counts

_VALUES: Final[Mapping[str, Any]] = {
    "int": int,
    "str": str,
    "bool": "True".__eq__,
    "float": float,
    "bytes": bytes.fromhex,
    "Decimal": Decimal,
    "UUID": UUID,
}
"""The types of partition values in manifests, by name, and how a value is read from its text."""

Bounds = dict[int, Annotated[str, AfterValidator(bytes.fromhex), PlainSerializer(bytes.hex)]]
"""Bounds by field id; in a document, in hex."""


class _File(BaseModel):
    """A data or delete file in a document, with the fields that a manifest lists (Iceberg spec, "Manifests")."""

    model_config = ConfigDict(extra="forbid")

    content: DataFileContent
    file_path: str
    spec_id: int
    partition: tuple[tuple[str, str] | None, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: dict[int, int] | None
    value_counts: dict[int, int] | None
    null_value_counts: dict[int, int] | None
    nan_value_counts: dict[int, int] | None
    lower_bounds: Bounds | None
    upper_bounds: Bounds | None
    split_offsets: list[int] | None
    sort_order_id: int | None


def _written(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    return [_File.model_construct(**_facts(file)).model_dump(mode="json") for file in files]


def _facts(file: DataFile) -> dict[str, Any]:
    facts = {name: getattr(file, name) for name in _File.model_fields}
    return facts | {"partition": tuple(_told(file.partition[place]) for place in range(len(file.partition)))}


def _told(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    return type(value).__name__, value.hex() if isinstance(value, bytes) else str(value)


def _read(files: Iterable[Any]) -> tuple[DataFile, ...]:
    return tuple(one if isinstance(one, DataFile) else _data_file(_File.model_validate(one)) for one in files)


def _data_file(told: _File) -> DataFile:
    facts = {name: value for name, value in told if name not in ("partition", "spec_id")}
    partition = Record(*(one and _VALUES[one[0]](one[1]) for one in told.partition))
    file = DataFile.from_args(file_format=FileFormat.PARQUET, partition=partition, **facts)
    file.spec_id = told.spec_id
    return file


Files = Annotated[tuple[DataFile, ...], PlainValidator(_read), PlainSerializer(_written)]
"""Files with their metrics; in a document, as dicts."""


class Change(FrozenModel):
    """What ``plan`` does to its table; of a task, what it has made of a part of the inputs. The plan is not part of a
    document, which has its id.

    ``fingerprint`` is a decimal number, the judge's fingerprint of the kept records as they were read (C24).
    ``in_place`` are the paths of segments that lose no records and stay as they are. Lane `convert` merges older
    position delete files into its own ``deletes``; ``merged`` are the paths of these older files, which are removed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    plan: Plan = Field(exclude=True)
    counts: Counts
    fingerprint: str = "0"
    in_place: frozenset[str] = frozenset()
    merged: tuple[str, ...] = ()
    kept: Files = ()
    """Data files that come to main."""
    quarantined: Files = ()
    removed_tombstones: Files = ()
    deletes: Files = ()
    """Position delete files that come to main."""

    @classmethod
    def joined(cls, plan: Plan, parts: Sequence["Change"], in_place: frozenset[str] = frozenset()) -> Self:
        """What ``plan`` does, by its tasks' ``parts`` in their order; ``in_place`` are segments that stay as well."""
        written = ("kept", "quarantined", "removed_tombstones", "deletes", "merged")
        return cls(
            plan=plan,
            counts=Counts.total(part.counts for part in parts),
            fingerprint=str(sum(int(part.fingerprint) for part in parts)),
            in_place=in_place.union(*(part.in_place for part in parts)),
            **{name: tuple(one for part in parts for one in getattr(part, name)) for name in written},
        )

    @property
    def drops(self) -> bool:
        """True if the change only removes whole segments, and nobody reads their records (C19)."""
        return self.plan.lane.traits.writes == "nothing"

    @property
    def written(self) -> tuple[DataFile, ...]:
        """All files that the change adds, on any branch."""
        return (*self.kept, *self.quarantined, *self.removed_tombstones, *self.deletes)

    def fits(self, table: Table) -> bool:
        """True if its data files have the partition spec of ``table`` as it is; it decides which later equality deletes
        apply to them (C27)."""
        files = (*self.kept, *self.quarantined, *self.removed_tombstones)
        return all(file.spec_id == table.metadata.default_spec_id for file in files)

    @property
    def replaced(self) -> list[str]:
        """Paths of the input segments that leave main; the other inputs stay in place."""
        return [segment.path for segment in self.plan.inputs if segment.path not in self.in_place]

    @property
    def replaced_tombstones(self) -> list[str]:
        """Paths of segments of removed tombstones that a copying lane replaces; other lanes only read them."""
        if not self.plan.lane.traits.copies:
            return []
        return [segment.path for segment in self.plan.removed_tombstones if segment.path not in self.in_place]
