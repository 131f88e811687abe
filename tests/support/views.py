"""What readers see of the table of a scenario."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from pyiceberg.table.refs import MAIN_BRANCH

from infra.foreign.files import files_under, on_disk
from tests.support import foreign_tables, row_deletes
from tests.support.records import shown
from tests.support.under_test import TableUnderTest, lower, segment_text

if TYPE_CHECKING:
    from collections.abc import Iterable

BRANCHES: Final = {"quarantined": "firn_quarantine", "removed": "firn_tombstones", "mended": "firn_mended"}


class Views(TableUnderTest):
    """Commands that ask and change nothing."""

    def do_read(self, rest: str) -> Iterable[str]:
        """The visible records of main, or of a branch (BRANCHES), in the order of partitions and offsets."""
        return [" ".join(shown(row) for row in self.rows(BRANCHES.get(rest, MAIN_BRANCH))) or "no record"]

    def do_levels(self, _: str) -> Iterable[str]:
        """The data files of main, as level and offsets, from their metrics."""
        found = ((lower(one, "partition"), lower(one, "offset"), segment_text(one)) for one, _ in self.data_files())
        return [" ".join(f"{where}/{text}" if where else text for where, _, text in sorted(found)) or "no segment"]

    def do_properties(self, rest: str) -> Iterable[str]:
        """Some of the properties in the summary of main's newest snapshot."""
        snapshot = self.loaded().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return [" ".join(f"{name}={snapshot.summary[f'firn.{name}'] or '-'}" for name in rest.split())]

    def do_files(self, _: str) -> Iterable[str]:
        """The data files of main, by partition and offset. From here on {file 0} is the first of them."""
        known = sorted(self.data_files(), key=lambda one: (lower(one[0], "partition"), lower(one[0], "offset")))
        self.named += [path for _, path in known if path not in self.named]
        files = [f"{{file {self.named.index(path)}}} {segment_text(metrics)}" for metrics, path in known]
        return [", ".join(files) or "no file"]

    def do_deletes(self, _: str) -> Iterable[str]:
        """The live delete files of main."""
        files, equality = row_deletes.delete_files(self.loaded()), row_deletes.equality_deletes(self.loaded())
        return [f"position {len(files) - len(equality)}, equality {len(equality)}"]

    def do_disk(self, _: str) -> Iterable[str]:
        """How many data files lie on the disk: those of main, and others."""
        live = {on_disk(file.file_path) for file in row_deletes.data_files(self.loaded())}
        found = {path for path in files_under(on_disk(self.loaded().location())) if path.suffix == ".parquet"}
        return [f"of main {len(found & live)}, others {len(found - live - set(self.strays.values()))}"]

    def do_whole(self, _: str) -> Iterable[str]:
        """How many files are gone that a snapshot names, and how many data files and documents of jobs none names."""
        table, named = self.loaded(), set[str]()
        for snapshot in table.metadata.snapshots:
            assert snapshot.summary is not None
            named |= {snapshot.manifest_list} | set(snapshot.summary.additional_properties.values())
            for manifest in snapshot.manifests(table.io):
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                named |= {manifest.manifest_path} | {entry.data_file.file_path for entry in entries}
        files = {on_disk(path) for path in named if path.startswith("file:")}
        there = files_under(on_disk(table.location()))
        # Manifests of a commit that lost a race are orphans, which go later.
        left = [
            one
            for one in there - files
            if "_firn" in one.parts and one.suffix in (".parquet", ".json") and "reports" not in one.parts
        ]
        return [f"missing {len(files - there)}, left {len(left)}"]

    def do_strays(self, _: str) -> Iterable[str]:
        """Which files that nothing refers to are still there."""
        return [" ".join(word for word, path in self.strays.items() if path.exists()) or "none"]

    def do_history(self, _: str) -> Iterable[str]:
        """How many snapshots the table has, its branches and tags."""
        metadata = self.loaded().metadata
        return [f"{len(metadata.snapshots)} snapshots, {' '.join(sorted(metadata.refs))}"]

    def do_columns(self, rest: str) -> Iterable[str]:
        """These columns of each visible record of main."""
        for row in self.rows():
            yield f"@{row['offset']} " + " ".join(f"{name}={row[name]}" for name in rest.split())

    def do_select(self, rest: str) -> Iterable[str]:
        """Some columns of all rows, in the order of the first, as PyIceberg reads them."""
        names = shlex.split(rest)
        found = self.loaded().scan(selected_fields=tuple(names)).to_arrow().sort_by(names[0]).to_pylist()
        return [" ".join(f"{name}={foreign_tables.shown(row[name])}" for name in names) for row in found] or ["no row"]

    def do_schema(self, _: str) -> Iterable[str]:
        """The columns and, behind ``/``, the partition fields."""
        table = self.loaded()
        columns, fields = table.schema().column_names, [field.name for field in table.spec().fields]
        return [" ".join(["columns", *columns, "/", *fields])]
