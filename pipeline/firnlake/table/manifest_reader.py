"""Reads the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket.

What a manifest says of a data file never changes, so it is kept (``ManifestCache``). What else is known about a segment
depends on the table's snapshots, on its row-level deletes, and on how often it lists the file; `read` adds this.
"""

import hashlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deletes import DeleteFile, Deletes, FileDeletes, Placed
from firnlake.iceberg.manifests import Manifests, ahead, fetch, manifests_of
from firnlake.table.classifier import Classifier, Files, ManifestContents
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.history import CommitSummary
from firnlake.table.records import COLUMNS
from firnlake.table.segment import LANDED, SCHEMA, Ints, Segment, Segments, UnassignedFile, segments_in

log = logging.getLogger(__name__)

_Columns: TypeAlias = Mapping[str, pa.Array | pa.ChunkedArray]
_MANIFESTS: Final = b"firn.manifests"
_DESCRIBED: Final = TypeAdapter(list[tuple[str, int, tuple[UnassignedFile, ...]]])
"""Of each manifest that a file of the cache is about: its name, and the number of its rows and its strays."""
_DIGEST_BYTES: Final = 16
_UNUSED_SECONDS: Final = 30 * 86_400
"""The age at which a file of the cache goes."""


def read(table: Table, identifier: str, cache: "ManifestCache | None" = None) -> Segments:
    """Read the segments of ``table``'s current snapshot; empty for a table without a snapshot.

    If metadata that decisions need is missing, the segment's ``problem`` says so and blocks only its topic partition
    (C20); a file whose topic partition is unknown is a stray. The ``cache`` changes no result.
    """
    snapshot = table.current_snapshot()
    manifests = manifests_of(table, snapshot) if snapshot else []
    classifier = Classifier(table, identifier)
    of_deletes = (one for one in manifests if one.content == ManifestContent.DELETES)
    deletes = Deletes(Manifests(table.io).live(of_deletes), table.specs())
    data = [one for one in manifests if one.content == ManifestContent.DATA]
    contents, roles = _contents(table, classifier, data, identifier, cache), classifier.roles
    listed, beyond = contents.rows, _beyond(contents.rows, deletes, table, roles)
    strays = (Placed(one.place, one.path, one.data_sequence_number) for one in contents.strays)
    placed = [*_placed(listed), *strays, *(former for _, former in beyond.values())] if deletes.equality else []
    relieved = partial(deletes.relieved, placed) if deletes.equality else None
    columns = {**_dated(listed, table, roles.timestamp is None), **_reached(listed, deletes, roles.levels_apart)}
    if beyond:
        problems = pa.array((beyond.get(path, (None,))[0] for path in listed["path"].to_pylist()), pa.string())
        columns["problem"] = pc.coalesce(listed["problem"], problems)
    described = _once(_with(listed, columns))
    if relieved:
        described = _relieved(described, relieved)
    number = None if snapshot is None else snapshot.sequence_number
    return replace(
        Segments.of(described, identifier, snapshot.snapshot_id if snapshot else None),
        strays=tuple({stray.path: stray for stray in contents.strays}.values()),
        sequence_number=None if classifier.roles.levels_apart else number,
        snapshot_number=number,
        relieved=relieved,
        mapping=table.properties.get(COLUMNS),
    )


def _contents(
    table: Table,
    classifier: Classifier,
    data: Iterable[ManifestFile],
    identifier: str,
    cache: "ManifestCache | None",
) -> ManifestContents:
    """Contents of the ``data`` manifests, from the ``cache`` or else from the store."""
    table_uuid = str(table.metadata.table_uuid)
    # Entries inherit what the manifest list says of their manifest (Iceberg spec).
    names = {
        f"{classifier.version} {one.sequence_number} {one.added_snapshot_id} {one.partition_spec_id} "
        f"{one.manifest_length} {one.manifest_path}": one
        for one in data
    }
    contents = cache.load(table_uuid, identifier) if cache else {}
    missing = {name: one for name, one in names.items() if name not in contents}
    incomplete: set[str] = set()
    # Each manifest's files become rows at once, because those of all manifests would take ten times the memory.
    fetched = ahead(lambda one: fetch(table.io, one.manifest_path), missing.values())
    for name, (manifest, content) in zip(missing, fetched, strict=True):
        contents[name] = classifier.of(Files.in_manifest(content, manifest))
        if classifier.unread:
            incomplete.add(name)
    if cache and missing.keys() - incomplete:
        whole = {name: contents[name] for name in names if name not in incomplete}
        cache.keep(table_uuid, identifier, whole)
    return ManifestContents.together(contents[name] for name in names)


def _with(listed: pa.Table, columns: _Columns) -> pa.Table:
    """``listed`` with these ``columns`` instead of those of the same names."""
    for name, column in columns.items():
        place = listed.schema.get_field_index(name)
        listed = listed.set_column(place, listed.schema.field(place), column)
    return listed


def _dated(listed: pa.Table, table: Table, times_of_commits: bool) -> _Columns:
    """Facts of the commit that added each segment; the time is null if the snapshot has expired.

    With ``times_of_commits``, a record has the time of its commit, as under Kafka's LogAppendTime. If that commit's
    snapshot has expired, the record has the time at which its file was written or, if the store tells none, the time of
    the oldest snapshot in the history, which came later: no record counts as older than it is (C11, C19).
    """
    # A file may have come to main from a snapshot of another branch.
    commits = [(one.snapshot_id, one.timestamp_ms, CommitSummary.of(one)) for one in table.metadata.snapshots]
    ids = pa.array([of for of, *_ in commits], pa.int64())
    places = pc.index_in(listed["snapshot_id"].combine_chunks(), ids)

    def column(values: Iterable[int | bool], kind: pa.DataType) -> pa.Array:
        return pa.array(list(values), kind).take(places)

    times = [told.now_ms if told else at_ms for _, at_ms, told in commits]
    committed = column(times, pa.int64())
    # A commit that served requests keeps levels, so its segments are not the work of a lane that gives them.
    by_firn = column((told is not None and not told.requests for *_, told in commits), pa.bool_())
    columns = {"committed_ms": committed, "by_firn": by_firn.fill_null(False)}  # noqa: FBT003  # Arrow's
    if times_of_commits:
        oldest_ms = min((one.timestamp_ms for one in ancestors(table)), default=0)
        columns["oldest_ms"] = columns["newest_ms"] = pc.coalesce(committed, listed["written_ms"], oldest_ms)
    return columns


_OF_DELETES: Final = ("row_deletes", "equality_deletes", "hidden", "deletes")
"""Columns with the parts of ``Deletes.totals``."""


def _reached(listed: pa.Table, deletes: Deletes, levels_apart: bool) -> _Columns:
    """Facts of the row-level deletes that may apply to each segment; ``hidden`` <= ``records``."""
    if not deletes.any or not listed.num_rows:
        return {}
    numbers: Ints = np.array(list(map(deletes.totals, _placed(listed))), dtype=np.int64)
    columns = {name: numbers[:, place] for place, name in enumerate(_OF_DELETES)}
    is_unknown = columns["equality_deletes"] > 0
    columns["hidden"] = np.minimum(columns["hidden"], listed["records"].to_numpy())
    if levels_apart:
        columns["holding_deletes"] = columns["equality_deletes"]
    return {name: pa.array(values, mask=is_unknown if name == "hidden" else None) for name, values in columns.items()}


def _placed(listed: pa.Table) -> Iterator[Placed]:
    return map(Placed, *(listed[name].to_pylist() for name in ("place", "path", "data_sequence_number")))


_LISTING: Final = ("topic", "partition", "path", "level")
_SUMS: Final = ("records", "bytes", "data_bytes", "tombstones", "null_keys", "stamped", "hidden", "copies")
_HIGHEST: Final = ("row_deletes", "holding_deletes", "deletes", "equality_deletes")


def _once(listed: pa.Table) -> pa.Table:
    """``listed`` with a single row for a file that the table lists more than once, such as after a repeated commit.

    Plans always take all copies together, because readers see the records of every copy. A file that is listed under
    several topic partitions or levels has a row for each, with a problem.
    """
    again = _repeated(listed["path"])
    if not len(again):
        return listed
    twice = pc.is_in(listed["path"], again)
    copies = listed.filter(twice).sort_by("sequence_number").group_by([*_LISTING], use_threads=False)
    whole = pc.ScalarAggregateOptions(skip_nulls=False, min_count=0)
    # Every other fact is that of the oldest listing.
    functions = dict.fromkeys(SCHEMA.names, "first") | dict.fromkeys(_SUMS, "sum") | dict.fromkeys(_HIGHEST, "max")
    how = {name: function for name, function in functions.items() if name not in _LISTING}
    merged = copies.aggregate([(name, function, whole) for name, function in how.items()])
    merged = pa.table([merged[f"{one}_{how[one]}" if one in how else one] for one in SCHEMA.names], schema=SCHEMA)
    problem = "is also listed under other partition values; allowed: one set of values"
    ambiguous = pc.is_in(merged["path"], _repeated(merged["path"]))
    merged = _with(merged, {"problem": pc.if_else(ambiguous, problem, merged["problem"])})
    return pa.concat_tables([listed.filter(pc.invert(twice)), merged])


def _repeated(paths: pa.ChunkedArray) -> pa.Array:
    counts = pc.value_counts(paths)
    return counts.filter(pc.greater(counts.field("counts"), 1)).field("values")


def _beyond(listed: pa.Table, deletes: Deletes, table: Table, columns: ColumnRoles) -> Mapping[str, tuple[str, Placed]]:
    """By path, the cleaned segments that an equality delete can no longer reach, because it is of an Iceberg partition
    that their records had before (C27); each with this problem, and as if it lay in that partition.

    Many writers know the partition of landed records only, or the partitioning that the table had. A writer whose
    commit also has an equality delete that reaches the segment knows better.
    """
    newest: dict[tuple[str | None, int | None], dict[tuple[int, int | None], DeleteFile]] = defaultdict(dict)
    for delete in sorted(deletes.equality, key=lambda one: one.sequence_number):
        spec_id, values = delete.source.spec_id, delete.source.partition
        spec = table.specs()[spec_id]
        names = (columns.topic, columns.partition, columns.level)
        places = [position(table.schema(), spec, name) if name else None for name in names]
        topic, partition, level = (None if place is None else values[place] for place in places)
        if not delete.everywhere:
            newest[topic, partition][spec_id, None if places[2] is None else level or LANDED] = delete
    found: dict[str, tuple[str, Placed]] = {}
    cleaned = listed.filter(pc.greater(listed["level"], LANDED)) if newest else listed.slice(0, 0)
    for row in cleaned.to_pylist():
        own_spec = int(row["place"].partition(" ")[0])
        placed = Placed(row["place"], row["path"], row["data_sequence_number"])
        for owner in product((row["topic"], None), (row["partition"], None)):
            for (spec_id, level), delete in newest.get(owner, {}).items():
                is_former = spec_id != own_spec or (level is not None and level < row["level"])
                if (
                    is_former
                    and delete.reaches_to >= placed.sequence_number
                    and not _is_reached(deletes, placed, delete)
                ):
                    problem = (
                        f"can't be reached by equality delete file {delete.path}, which is newer, but of an Iceberg "
                        "partition from before the records were cleaned; allowed: no such file (delete the records "
                        "with DELETE FROM, then the file with rewrite_data_files and remove-dangling-deletes)"
                    )
                    found[placed.path] = (problem, placed._replace(place=delete.scope))
    return found


def _is_reached(deletes: Deletes, file: Placed, delete: DeleteFile) -> bool:
    """True when ``file`` is reached by an equality delete of the commit that added ``delete``."""
    reaching = deletes.reaching(file)
    return reaching is not None and any(
        one.is_equality and one.sequence_number == delete.sequence_number for one in reaching.files
    )


def _relieved(listed: pa.Table, relieved: Callable[[Collection[str]], Collection[str]]) -> pa.Table:
    """``listed`` with ``equality_deletes`` = 0 where the equality delete files could not be removed from the table,
    because each also reaches a stray, or a segment that is listed twice or has a problem."""
    taken = listed.filter(pc.and_(pc.is_null(listed["problem"]), pc.equal(listed["copies"], 1)))["path"]
    freed = pa.array(sorted(relieved(taken.to_pylist())), pa.string())
    counts = pc.if_else(pc.is_in(listed["path"], value_set=freed), listed["equality_deletes"], 0)
    return _with(listed, {"equality_deletes": counts})


def read_entries(
    table: Table, manifests: Manifests | None = None, among: Collection[str] | None = None
) -> Iterator[tuple[ManifestEntry, FileDeletes | None]]:
    """Yield every live data file of the current snapshot, or only those at the paths ``among``, each with the row-level
    deletes that may apply to it, if there are any. PyIceberg plans no scan of a snapshot with equality deletes.

    ``manifests`` caches the entries of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    files = manifests_of(table, snapshot) if snapshot else []
    known = manifests or Manifests(table.io)
    listed = known.live(manifest for manifest in files if manifest.content == ManifestContent.DELETES)
    deletes = Deletes(listed, table.specs())
    for entry in known.live(manifest for manifest in files if manifest.content == ManifestContent.DATA):
        file = entry.data_file
        if among is None or file.file_path in among:
            yield entry, deletes.reaching(Placed.of(file, entry.sequence_number or 0)) if deletes.any else None


def removed(table: Table, identifier: str) -> Iterator[tuple[Snapshot, Segment | UnassignedFile]]:
    """Yield every data file that a commit in main's history has removed, those of the newest commit first; row-level
    deletes are not counted."""
    classifier = Classifier(table, identifier)
    for snapshot in ancestors(table):
        for manifest in manifests_of(table, snapshot):
            # A commit that removes a file lists the file as deleted in a new manifest (Iceberg spec, "Manifests").
            if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                content = fetch(table.io, manifest.manifest_path)
                found = classifier.of(Files.in_manifest(content, manifest, removed=True), are_there=False)
                rows = _with(found.rows, _dated(found.rows, table, classifier.roles.timestamp is None))
                yield from ((snapshot, one) for one in segments_in(rows.columns))
                yield from ((snapshot, one) for one in found.strays)


@dataclass(frozen=True)
class ManifestCache:
    """What manifests say, in files below ``folder`` for all processes of this machine: each is read and decoded once.

    There is a file of Arrow rows for each table, and for each of its branches that is read. It holds what the manifests
    of the branch's newest snapshot say, one after the other; manifests are immutable, so this stays valid. A file
    begins with the digest of its content. So a reader sees a whole file or none, and recognizes a damaged one, which it
    replaces by reading the manifests again. Processes share the files without a lock: two may do the same work.
    Deleting the folder costs nothing but time. A file that nobody has written for a month goes: its table may have been
    dropped.
    """

    folder: Path

    @classmethod
    def of(cls, lake: Lake) -> "ManifestCache | None":
        """The cache in the home folder of ``lake``; None if there is no home folder, which a command that only reads
        must not create."""
        return cls(lake.cache_folder / "manifests") if lake.home.is_dir() else None

    def load(self, table_uuid: str, branch: str) -> dict[str, ManifestContents]:
        """The stored contents of a table's ``branch``, by manifest; empty when none are stored, or they are damaged."""
        path = self._path(table_uuid, branch)
        try:
            content = path.read_bytes()
        except OSError:
            return {}
        if _digest(content[_DIGEST_BYTES:]) == content[:_DIGEST_BYTES]:
            return _parsed(content[_DIGEST_BYTES:])
        log.warning("%s is corrupt; its manifests are read again", path)
        return {}

    def keep(self, table_uuid: str, branch: str, contents: Mapping[str, ManifestContents]) -> None:
        """Keep ``contents``, and nothing else of this branch. A failed write loses nothing."""
        path = self._path(table_uuid, branch)
        unfinished = path.with_suffix(f".{os.getpid()}")
        content = _serialized(contents)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(_digest(content) + content)
            unfinished.rename(path)
        except OSError as error:
            log.warning("the cache of manifests can't be written: %s", error)
            return
        for other in self.folder.iterdir():
            with suppress(OSError):  # another process has deleted it
                if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                    other.unlink()

    def _path(self, table_uuid: str, branch: str) -> Path:
        return self.folder / f"{_digest(f'{table_uuid} {branch}'.encode()).hex()}.arrow"


def _digest(content: bytes) -> bytes:
    digest: bytes = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return digest


def _serialized(contents: Mapping[str, ManifestContents]) -> bytes:
    described = [(name, one.rows.num_rows, one.strays) for name, one in contents.items()]
    schema = SCHEMA.with_metadata({_MANIFESTS: _DESCRIBED.dump_json(described)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(ManifestContents.together(contents.values()).rows.cast(schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _parsed(content: bytes) -> dict[str, ManifestContents]:
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        rows, described = reader.read_all(), _DESCRIBED.validate_json(reader.schema.metadata[_MANIFESTS])
    contents, start = {}, 0
    for name, count, strays in described:
        contents[name] = ManifestContents(rows.slice(start, count).replace_schema_metadata(), strays)
        start += count
    return contents
