"""Files that hold a record or a value of one key, as others than Firn write them, and a search that is not Firn's."""

import gzip
import io
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile, write_manifest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AssertTableUUID, TableUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, TimestamptzType

from firnlake.iceberg.catalog import Lake
from firnlake.table.records import PARTITION_FIELDS
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add, commit_manifests

KEY: Final = b"nobody-4711"
"""Neither the lowest nor the highest key of its file: no bound tells it."""
TABLE: Final = "db.plants"
TIME_MS: Final = 1_700_000_000_000
Rows = list[dict[str, Any]]
_TIME: Final = to_bytes(TimestamptzType(), TIME_MS * 1000)
Place = StrEnum("Place", "MAIN BRANCH TOMBSTONES TAG SNAPSHOT SPEC BESIDE OUTSIDE LEFT")
"""What refers to a planted file. SNAPSHOT is on no branch; SPEC is main, by an older spec without fields. BESIDE and
LEFT are nothing: LEFT is OUTSIDE the table's location, and PyIceberg has expired the snapshots that listed it."""


def rows(start: int = 0, partition: int | None = 0, topic: str | None = "orders") -> Rows:
    """Three records, of which the one in the middle has the key."""
    facts = {"topic": topic, "partition": partition, "timestamp": TIME_MS * 1000, "timestampType": 0}
    return [{"key": key, "value": b"1", "offset": start + n} | facts for n, key in enumerate((b"a", KEY, b"z"))]


def parquet(held: pa.Table) -> bytes:
    pq.write_table(held, sink := io.BytesIO())
    return sink.getvalue()


@dataclass
class Site:
    """One place of the table, and what was planted there."""

    lake: Lake
    place: Place
    outside: Path
    written: list[Path] = field(default_factory=list)
    reference: str | None = None
    """The branch, tag or snapshot on no branch that holds what is planted; the name of main says too little."""

    @property
    def table(self) -> Table:
        return self.lake.table(TABLE)

    def arrow(self, records: Rows) -> pa.Table:
        return pa.Table.from_pylist(records, schema=schema_to_pyarrow(self.table.schema()))

    def write(self, name: str, content: bytes, folder: str = "data") -> Path:
        """Write a file; braces in its ``name`` stand for digits that no other file has."""
        root = self.outside if self.place in (Place.OUTSIDE, Place.LEFT) else on_disk(self.table.location())
        path = root / folder / name.format(uuid.uuid4().hex)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        self.written.append(path)
        return path

    def plant(self, records: Rows, form: str = "parquet", content: bytes | None = None, times: int = 1) -> None:
        """Write a data file of ``records``, or of ``content`` in their place, and list it so many ``times``."""
        if self.place is Place.TOMBSTONES:
            self.reference = "firn_tombstones"
            self.table.append(self.arrow(records), branch=self.reference)
        else:
            path = self.write(f"planted-{{}}.{form}", content or parquet(self.arrow(records)))
            self.list(*[self.entry(path, records)] * times)

    def entry(self, path: Path, records: Rows, **facts: Any) -> DataFile:
        """A manifest's entry for a file of ``records``."""
        is_stray = self.place is Place.SPEC or len(records) > len(rows())
        offsets = [to_bytes(LongType(), one["offset"]) for one in records]
        given: dict[str, Any] = {
            "content": DataFileContent.DATA,
            "file_path": f"file://{path}",
            "file_format": FileFormat[path.suffix[1:].upper()],
            "partition": Record(*(() if is_stray else (records[0].get(name) for name in PARTITION_FIELDS))),
            "record_count": len(records),
            "file_size_in_bytes": path.stat().st_size,
            "null_value_counts": dict.fromkeys((1, 2, 5, 6), 0),
            "lower_bounds": {5: offsets[0], 6: _TIME},
            "upper_bounds": {5: offsets[-1], 6: _TIME},
        }
        file = DataFile.from_args(**(given | facts))
        file.spec_id = next(n for n, spec in self.table.specs().items() if len(spec.fields) == len(file.partition))
        return file

    def list(self, *data: DataFile, deletes: Sequence[DataFile] = (), removed: ManifestFile | None = None) -> int:
        """Commit files, or a manifest of ``removed`` ones; the snapshot to which this place then refers."""
        before = self.table.current_snapshot()
        assert before is not None
        if self.place is Place.BESIDE:
            return before.snapshot_id
        if removed:
            manifests, snapshot_id = [*before.manifests(self.table.io), removed], removed.added_snapshot_id or 0
            commit_manifests(self.lake, self.table, manifests, snapshot_id, Operation.DELETE)
        else:
            add(self.lake, TABLE, deletes, data)
        made = self.table.metadata.current_snapshot_id or 0
        with self.table.manage_snapshots() as manage:
            if self.place in (Place.BRANCH, Place.TAG):
                self.reference = "audit"
                (manage.create_tag if self.place is Place.TAG else manage.create_branch)(made, self.reference)
            elif self.place is Place.SNAPSHOT:
                self.reference = str(made)
            if self.reference:
                manage.rollback_to_snapshot(before.snapshot_id)
        return made

    def avro(self) -> None:
        schema, path = self.table.schema(), self.outside.with_suffix(".avro")
        with AvroOutputFile[Record](self.table.io.new_output(str(path)), schema, "data", schema) as file:
            file.write_block([Record(*(one.get(column.name) for column in schema.fields)) for one in rows()])
        self.plant(rows(), "avro", path.read_bytes())

    def without_ids(self) -> None:
        held = self.arrow(rows())
        self.plant(rows(), content=parquet(pa.table({name: held[name] for name in reversed(held.column_names)})))

    def by_key(self) -> None:
        path = self.write("planted-{}.parquet", parquet(self.arrow(rows()[1:2])), f"data/key={KEY.decode()}")
        self.list(self.entry(path, rows()[1:2], partition=Record(KEY)))

    def equality_delete(self) -> None:
        path = self.write("planted-{}.parquet", parquet(self.arrow(rows()).select(["key"])))
        self.list(deletes=[self.entry(path, rows(), content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])])

    def position_delete(self) -> None:
        """With the optional column `row`, which keeps the deleted rows (Iceberg specification)."""
        deleted, held = next(iter(self.table.scan().plan_files())).file.file_path, self.arrow(rows())
        whole = pa.StructArray.from_arrays([one.chunk(0) for one in held.columns], fields=list(held.schema))
        columns = {"file_path": pa.array([deleted] * 3), "pos": pa.array(range(3), pa.int64()), "row": whole}
        ids = [{"PARQUET:field_id": str(2147483546 - at)} for at in range(len(columns))]
        fields = [pa.field(name, columns[name].type, metadata=id_) for name, id_ in zip(columns, ids, strict=True)]
        path = self.write("planted-{}.parquet", parquet(pa.table(list(columns.values()), schema=pa.schema(fields))))
        facts = {"content": DataFileContent.POSITION_DELETES, "lower_bounds": {}, "upper_bounds": {}}
        self.list(deletes=[self.entry(path, rows(), **facts)])

    def puffin(self, length: int | None = None) -> None:
        """Statistics with one blob, which keeps values; ``length`` is that of a file which was cut."""
        blob = {"type": "most-frequent-values", "fields": [1], "snapshot-id": 1, "sequence-number": 1}
        footer = json.dumps({"blobs": [blob | {"offset": 4, "length": len(KEY)}]}).encode()
        end = b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
        more = {"file-footer-size-in-bytes": len(end), "blob-metadata": []}
        self._attach("statistics", "planted-{}.puffin", (b"PFA1" + KEY + end)[:length], more)

    def partition_statistics(self) -> None:
        self._attach("partition-statistics", "planted-{}.parquet", parquet(pa.table({"partition": [{"key": KEY}]})), {})

    def _attach(self, kind: str, name: str, content: bytes, more: dict[str, Any]) -> None:
        path, snapshot_id = self.write(name, content, "metadata"), self.list()
        facts = {"snapshot-id": snapshot_id, "statistics-path": f"file://{path}", "file-size-in-bytes": len(content)}
        update = {"action": f"set-{kind}", "snapshot-id": snapshot_id, kind: facts | more}
        if self.place is not Place.BESIDE:
            table, valid = self.table, TypeAdapter[TableUpdate](TableUpdate).validate_python(update)
            self.lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (valid,))

    def bounds(self) -> None:
        """A manifest that lists a removed file, of which the key is the lowest and highest value."""
        path, table, snapshot_id = self.write("planted-{}.avro", b"", "metadata"), self.table, uuid.uuid4().int >> 66
        bound = {"lower_bounds": {1: KEY}, "upper_bounds": {1: KEY}}
        file = self.entry(path, rows()[1:2], file_path=f"{table.location()}/data/removed.parquet", **bound)
        output = table.io.new_output(f"file://{path}")
        with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
            writer.delete(ManifestEntry.from_args(sequence_number=1, file_sequence_number=1, data_file=file))
        self.list(removed=writer.to_manifest_file())

    def unknown_files(self) -> None:
        self.write("planted-{}.csv", b"1," + KEY)
        self.write("planted-{}-m0.avro", b"Obj\x01" + KEY)
        self.write("planted-{}.json.gz", gzip.compress(KEY))
        self.write("_planted-{}.parquet", parquet(self.arrow(rows())))

    def stage_document(self) -> None:
        sample = {"offset": 1, "key": KEY.decode(), "found": "it", "expected": "nothing", "value": None}
        content = json.dumps({"verdicts": {"p": {"expectations": [{"samples": [sample]}]}}}).encode()
        folder = f"metadata/_firn/{self.table.metadata.table_uuid}/jobs/0123456789abcdef"
        self.write("verdicts-0123456789abcdef.json", content, folder)

    def forget(self) -> None:
        """Expire all snapshots that no reference names, as PyIceberg does: in the metadata only."""
        kept = {one.snapshot_id for one in self.table.refs().values()}
        old = [one.snapshot_id for one in self.table.snapshots() if one.snapshot_id not in kept]
        self.table.maintenance.expire_snapshots().by_ids(old).commit()

    def holders(self) -> set[Path]:
        """The files below the table's location, and the planted ones elsewhere, that hold the key or can't be read."""
        there = files_under(on_disk(self.table.location())) | {path for path in self.written if path.exists()}
        return {path for path in there if KEY.decode() in f"{path} {_shown(path)}"}


def _shown(path: Path) -> str:
    """All that the file holds; the key where that can't be told."""
    content = path.read_bytes()
    try:
        if content.startswith(b"Obj\x01"):
            with AvroFile[Record](PyArrowFileIO().new_input(str(path))) as file:
                return str(list(file))
        if content.startswith(b"PAR1"):
            return str(pq.read_table(io.BytesIO(content)).to_pylist())
    # PyIceberg meets a negative length with SystemError.
    except (pa.ArrowException, ValueError, SystemError):
        return KEY.decode()
    return str(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
