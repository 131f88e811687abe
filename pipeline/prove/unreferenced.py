"""Files below a table's location that its metadata does not name: what kind each is, by its name (C30)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.table import Table

from pipeline.errors import FirnError
from pipeline.lake.folders import Stored, data_folder, store
from pipeline.lake.job_documents import documents_folder
from pipeline.lake.paths import path_of
from pipeline.lake.puffin import read_puffin
from pipeline.plan.failure import SHOWS_RECORDS

_HARMLESS: Final = (".metadata.json", ".metadata.json.gz", "version-hint.text", ".crc", "_SUCCESS")
"""Ends of the names of files without records: former metadata files, checksums, marks."""
_SKETCHES: Final = ("apache-datasketches-theta-v1", "deletion-vector-v1", "firn-")
"""Types of blobs without a key: sketches keep hashes, vectors positions, Firn's own digests."""


@dataclass(frozen=True)
class Unreferenced:
    """The files that nothing refers to, by what they may hold; their paths are locations."""

    parquet: list[Stored]
    manifests: list[Stored]
    documents: list[Stored]
    unknown: list[Stored]
    """Files of no known kind."""
    roots: tuple[str, ...]
    """The locations that were listed."""

    @classmethod
    def of(cls, table: Table, known: Iterable[str]) -> "Unreferenced":
        """List the location of ``table``, hidden files included, without the ``known`` locations."""
        location = table.location().rstrip("/")
        others = {data_folder(table), documents_folder(table)}
        roots = (location, *sorted(one for one in others if not one.startswith(f"{location}/")))
        held = {path_of(one) for one in known}
        unreferenced = cls([], [], [], [], roots)
        for root in roots:
            files, folder = store(table, root)
            for one in _files(files, folder):
                file = replace(one, path=f"{root}{one.path[len(folder) :]}")
                if path_of(file.path) not in held and file.bytes and not file.path.endswith(_HARMLESS):
                    unreferenced._kind(table, file).append(file)
        return unreferenced

    def _kind(self, table: Table, file: Stored) -> list[Stored]:
        if file.path.endswith(".parquet"):
            return self.parquet
        if file.path.endswith(".avro"):
            return self.manifests
        if file.path.endswith(".puffin") and _is_sketch(table, file):
            return []
        return self.documents if ".json" in file.path.rpartition("/")[2] else self.unknown


def _files(files: FileSystem, folder: str) -> Iterator[Stored]:
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=True)):
        if info.is_file:
            yield Stored.of(info)


def _is_sketch(table: Table, file: Stored) -> bool:
    try:
        return all(one.type.startswith(_SKETCHES) for one in read_puffin(table, file.path, file.path))
    except FirnError:
        return False


def samples_in(table: Table, file: Stored) -> int | None:
    """Number of records that the JSON document ``file`` shows; None when it can't be read."""
    try:
        with table.io.new_input(file.path).open() as stream:
            return sum(_samples(json.loads(stream.read())))
    except (OSError, ValueError, RecursionError):
        return None


def _samples(value: Any) -> Iterator[int]:
    """Yield 1 for each sample of a verdict that shows a key or a value (`expectations.verdict.Sample`), and for each
    failure that describes records."""
    if isinstance(value, dict):
        if {"offset", "key", "found", "expected"} <= value.keys():
            yield int(any(value.get(name) is not None for name in ("key", "value")))
        elif {"room", "reason"} <= value.keys():
            yield int(SHOWS_RECORDS in str(value["reason"]))
        for one in value.values():
            yield from _samples(one)
    elif isinstance(value, list):
        for one in value:
            yield from _samples(one)
    elif isinstance(value, str) and value[:1] in "{[":
        try:
            inner = json.loads(value)
        except ValueError:
            return
        yield from _samples(inner)
