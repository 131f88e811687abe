"""What other writers and operators do to the table of a scenario, who know nothing of Firn."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType

from firnlake.iceberg.data_files import partition_values
from firnlake.table.columns import ColumnRoles
from firnlake.table.records import KAFKA_COLUMNS, SCHEMA
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, equality_file, position_file
from tests.support import foreign, foreign_tables, row_deletes
from tests.support.records import LOW_THRESHOLDS, NOW, rows_of, span, unescaped
from tests.support.under_test import TableUnderTest, lower, pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.table import Table


class Writers(TableUnderTest):
    """Commands of everybody who is not Firn."""

    def do_append(self, rest: str) -> Iterable[str]:
        """Append as a writer does that knows nothing of Firn."""
        for records in self.batches(rest):
            self.loaded().append(self.foreign_rows(records))
        return ()

    def do_claim(self, rest: str) -> Iterable[str]:
        """Append as a writer does that claims what is Firn's: ``claim 2 a=1`` level 2, ``claim 0+1d a=`` a horizon."""
        claimed, _, records = rest.partition(" ")
        level, _, horizon = claimed.partition("+")
        moment = (NOW + span(horizon)) * 1000 if horizon else None
        for claiming in self.batches(records):
            self.loaded().append(self.foreign_rows(claiming, int(level), moment))
        return ()

    def do_claim_summary(self, rest: str) -> Iterable[str]:
        """Append one record with properties in the snapshot's summary, ``claim_summary a=1 firn.now-ms=9``; `copied`
        stands for those of Firn in the newest summary."""
        record, *words = rest.split()
        (records,) = self.batches(record)
        snapshot = self.loaded().current_snapshot()
        assert snapshot is not None
        newest = snapshot.summary.additional_properties if snapshot.summary else {}
        copied = {name: value for name, value in newest.items() if name.startswith("firn.") and "copied" in words}
        self.loaded().append(self.foreign_rows(records), snapshot_properties=copied | dict(pairs(words)))
        return ()

    def do_append_empty(self, _: str) -> Iterable[str]:
        """Append a data file without a record, as some writers do."""
        foreign.append_empty_file(self.opened.lake, self.name)
        return ()

    def do_delete(self, rest: str) -> Iterable[str]:
        """Hide the records with these offsets by position deletes, as merge-on-read does."""
        lake = self.opened.lake
        row_deletes.delete_at(
            lake, self.name, row_deletes.places(lake, self.name, {int(word) for word in rest.split()})
        )
        return ()

    def do_delete_keys(self, rest: str) -> Iterable[str]:
        """Hide the records of these keys by an equality delete in each partition, as Flink's upserts do."""
        return self.do_delete_equal(f"key {rest}")

    def do_delete_equal(self, rest: str) -> Iterable[str]:
        """Hide records by an equality delete of columns: ``key,value a,1 b,-``, `-` for NULL; ``1/key a`` in partition
        1 alone, ``*/key a`` by one that reaches all partitions."""
        names, *rows = rest.split()
        where, _, listed = names.rpartition("/")
        table, columns = self.loaded(), listed.split(",")
        parts = {(file.spec_id, partition_values(file)) for file in row_deletes.data_files(table)}
        if where == "*":
            parts = {(next(number for number, spec in table.specs().items() if not spec.fields), ())}
        elif where:
            parts = {part for part in parts if int(where) in part[1]}
        held = [_values(table, columns, row.split(",")) for row in rows]
        files = [equality_file(table, columns, held, number, values) for number, values in sorted(parts, key=repr)]
        add(self.opened.lake, self.name, files)
        return ()

    def do_delete_rows(self, rest: str) -> Iterable[str]:
        """Hide records of a file that ``files`` has shown by their places, ``delete_rows 0 1 1000``; the delete file
        names one that is not there as well."""
        number, *places = map(int, rest.split())
        table, path = self.loaded(), self.named[number]
        file = next(one for one in row_deletes.data_files(table) if one.file_path == path)
        rows = [(file.file_path, place) for place in places] + [("file:///gone.parquet", 0)]
        delete = position_file(table, rows, file.spec_id, partition_values(file), bounds=False)
        add(self.opened.lake, self.name, [delete])
        return ()

    def do_overwrite(self, rest: str) -> Iterable[str]:
        """Load records in place of everything, as another writer's INSERT OVERWRITE does."""
        (records,) = self.batches(rest)
        self.loaded().overwrite(self.foreign_rows(records))
        return ()

    def do_drop(self, rest: str) -> Iterable[str]:
        """Delete rows as PyIceberg does, which rewrites their files: ``drop offset = 1``."""
        self.loaded().delete(rest)
        return ()

    def do_upserted(self, rest: str) -> Iterable[str]:
        """A table that another writer upserts into, adopted; with `unpartitioned`, without any partition field."""
        words = rest.split()
        chosen = {f"firn.{name}": value for name, value in pairs(words)}
        schema = Schema(*(field for field in SCHEMA.fields if field.name in KAFKA_COLUMNS))
        kind = {"format-version": "2", "write.upsert.enabled": "true"}
        self.opened.lake.create_namespace(self.name.partition(".")[0])
        made = self.opened.lake.catalog.create_table(self.name, schema, properties=kind)
        parts = [] if "unpartitioned" in words else ["topic", "partition"]
        if parts:
            with made.update_spec() as change:
                for name in parts:
                    change.add_identity(name)
        topic, partition = parts or (None, None)
        choice = ColumnRoles(
            key=("key",),
            offset="offset",
            timestamp="timestamp",
            topic=topic,
            partition=partition,
            tombstone="value IS NULL",
        )
        self.table.adopt(choice, {"firn.null.keys": "quarantine"} | LOW_THRESHOLDS | chosen)
        self.made = self.own_columns = True
        return ()

    def do_table(self, rest: str) -> Iterable[str]:
        """Create a table as others do: ``name=type`` for each column (see `foreign_tables.create`)."""
        foreign_tables.create(self.opened.lake, self.name, rest)
        self.made = self.own_columns = True
        return ()

    def do_rows(self, rest: str) -> Iterable[str]:
        """Append rows as others do: ``name=value`` for each column that is not NULL; ``||`` parts commits."""
        for rows in rest.split(" || "):
            foreign_tables.append(self.loaded(), rows)
        return ()

    def do_alter(self, rest: str) -> Iterable[str]:
        """Change columns and partition fields as others do (see `foreign_tables.alter`)."""
        foreign_tables.alter(self.loaded(), rest)
        return ()

    def do_again(self, _: str) -> Iterable[str]:
        """Drop the table, and create another one with its name."""
        self.opened.lake.catalog.drop_table(self.name)
        self.table.create()
        return ()

    def do_rollback(self, rest: str) -> Iterable[str]:
        """Make an older snapshot main's newest again, as an operator does: ``rollback 2`` goes two back."""
        table = self.loaded()
        snapshot = table.current_snapshot()
        for _ in range(int(rest or 1)):
            assert snapshot is not None
            assert snapshot.parent_snapshot_id is not None
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        assert snapshot is not None
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()
        return ()

    def do_mark(self, _: str) -> Iterable[str]:
        """Remember main's newest snapshot."""
        self.marks.append(self.loaded().metadata.current_snapshot_id or 0)
        return ()

    def do_head(self, rest: str) -> Iterable[str]:
        """Make a remembered snapshot main's newest, ``head 0`` the first."""
        self.loaded().manage_snapshots().set_current_snapshot(self.marks[int(rest)]).commit()
        return ()

    def do_recreate(self, _: str) -> Iterable[str]:
        """Drop the table, without its files, and create one of the same columns and properties at its location."""
        table = self.loaded()
        self.opened.lake.catalog.drop_table(self.name)
        self.opened.lake.catalog.create_table(
            self.name, table.schema(), table.location(), table.spec(), properties=table.properties
        )
        return ()

    def do_expire(self, _: str) -> Iterable[str]:
        """Expire all snapshots that are not the newest of a branch, as Iceberg's own procedure does."""
        table = self.loaded()
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        return ()

    def do_ref(self, rest: str) -> Iterable[str]:
        """Name main's newest snapshot: ``ref tag audit``; with a longest age, ``ref branch audit 1d``."""
        kind, name, *age = rest.split()
        manage, snapshot_id = self.loaded().manage_snapshots(), self.loaded().metadata.current_snapshot_id
        assert snapshot_id is not None
        make = manage.create_tag if kind == "tag" else manage.create_branch
        make(snapshot_id, name, max_ref_age_ms=span(age[0]) if age else None).commit()
        return ()

    def do_unref(self, rest: str) -> Iterable[str]:
        """Drop a branch."""
        self.loaded().manage_snapshots().remove_branch(rest).commit()
        return ()

    def do_rewrite_manifests(self, _: str) -> Iterable[str]:
        """List the same files in one new manifest, as other engines do."""
        foreign.rewrite_manifests(self.opened.lake, self.name)
        return ()

    def do_set(self, rest: str) -> Iterable[str]:
        with self.loaded().transaction() as change:
            change.set_properties({f"firn.{name}": value for name, value in pairs(rest.split())})
        return ()

    def do_property(self, rest: str) -> Iterable[str]:
        """Set properties by their whole names, as any client may; ``name=`` removes one. `filled` fills in."""
        known = pairs(shlex.split(self.filled(rest)))
        with self.loaded().transaction() as change:
            change.set_properties({name: value for name, value in known if value})
            change.remove_properties(*(name for name, value in known if not value))
        return ()

    def do_tear(self, rest: str) -> Iterable[str]:
        """Cut the end of a file off that ``files`` has shown, as a writer does that died."""
        path = on_disk(self.named[int(rest)])
        path.write_bytes(path.read_bytes()[:-200])
        return ()

    def do_lose(self, rest: str) -> Iterable[str]:
        """Delete a file that ``files`` has shown, as a rule of the store does."""
        on_disk(self.named[int(rest)]).unlink()
        return ()

    def do_lose_offsets(self, rest: str) -> Iterable[str]:
        """Delete the data files of main that begin with these offsets from the store, as an accident does."""
        wanted = {int(word) for word in rest.split()}
        for file in self.loaded().inspect.data_files().to_pylist():
            if lower(file["readable_metrics"], "offset") in wanted:
                on_disk(file["file_path"]).unlink()
        return ()

    def do_bare(self, rest: str) -> Iterable[str]:
        """Append a file of orders-0 whose manifest entry lacks all metrics of some columns: ``bare offset,key a=1``."""
        names, _, records = rest.partition(" ")
        table = self.loaded()
        ids = {field.field_id for field in table.schema().fields if names == "*" or field.name in names.split(",")}
        for batch in self.batches(records):
            rows = self.foreign_rows(batch).to_pylist()
            file = row_deletes.data_file(table, rows, table.spec().spec_id, ("orders", 0, None))
            known = {name: getattr(file, name) or {} for name in foreign.METRICS}
            left = {name: {one: own[one] for one in own if one not in ids} for name, own in known.items()}
            add(self.opened.lake, self.name, [], [foreign.relisted(file, **left)])
        return ()

    def do_unmeasured(self, rest: str) -> Iterable[str]:
        """Write a file that ``files`` has shown anew, without statistics in its footer: ``unmeasured 0 offset``."""
        number, column = rest.split()
        path = on_disk(self.named[int(number)])
        held = pq.read_table(path, partitioning=None)
        pq.write_table(held, path, write_statistics=[one for one in held.column_names if one != column])
        return ()

    def do_relist(self, rest: str) -> Iterable[str]:
        """List a file once more that ``files`` has shown, as a sink does that repeats a commit."""
        path = self.named[int(rest)]
        files = [file for file in row_deletes.data_files(self.loaded()) if file.file_path == path]
        add(self.opened.lake, self.name, [], files)
        return ()

    def do_stray(self, rest: str) -> Iterable[str]:
        """Put files below the table's location that nothing names; ``{uuid}`` is the table's."""
        for word in rest.split():
            name = self.filled(word).replace("{uuid}", str(self.loaded().metadata.table_uuid))
            path = on_disk(self.loaded().location()) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")
            self.strays[word] = path
        return ()

    def do_file(self, rest: str) -> Iterable[str]:
        """Write a file of lines into the folder."""
        return self._write(rest, "".join(f"{line}\n" for line in self.text).encode())

    def do_bytes(self, rest: str) -> Iterable[str]:
        r"""Write a file of bytes into the folder; ``\xff`` is a byte, and a line ends where it says ``\n``."""
        return self._write(rest, unescaped("".join(self.text)))

    def do_write(self, rest: str) -> Iterable[str]:
        """Write records as a Parquet file into the folder: ``write a.parquet a=1 b=1``."""
        name, _, records = rest.partition(" ")
        pq.write_table(rows_of(self.history.records(records)), self.folder / name)
        return ()

    def _write(self, name: str, content: bytes) -> Iterable[str]:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return ()


def _values(table: Table, columns: Sequence[str], row: Sequence[str]) -> list[Any]:
    """Values of ``columns`` from their text: bytes or a whole number; ``-`` is NULL."""
    kinds = [table.schema().find_type(name) for name in columns]
    return [
        None if text == "-" else text.encode() if isinstance(kind, BinaryType) else int(text)
        for kind, text in zip(kinds, row, strict=True)
    ]
