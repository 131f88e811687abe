"""Tables of records on disk, made once per shape and kept: every run starts from a copy of their metadata.

The tail is what Firn's own full clean makes of landed records, so its files are what peers meet in practice, with zstd
at the level that every entry writes. The head is landed on top in a few commits.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from infra.bench import check
from infra.bench.check import Fingerprint
from infra.bench.data import KEY_BYTES, NOW_MS, Flags, Shape, Stream, batches, slices, stream
from pipeline.engine import Engine
from pipeline.lake import Lake, records
from pipeline.run import run
from pipeline.sense import Lane

VERSION = 2
"""Part of every cached input's name: raise it when the same shape gives other records or files."""
NAMESPACE = "bench"
HEAD_COMMITS = 8
SMALLEST_SEGMENT = 1 << 20
LANDED_BYTES = 64 << 20
"""Raw bytes of the records that are landed with one commit."""
ZSTD_LEVEL = 3
"""Default of Iceberg's Parquet writer."""


@dataclass(frozen=True)
class State:
    """One state of a table: its metadata file, its live data files, and what may be in it after each task."""

    metadata: str
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files)


@dataclass(frozen=True)
class Inputs:
    """A shape's table. ``raw_bytes`` are keys and values of all records; sizes of files are bytes on disk."""

    lake: Lake
    shape: Shape
    segment_bytes: int
    records: int
    raw_bytes: int
    tail: State
    whole: State
    merged: State
    everything: Fingerprint
    newest: Fingerprint
    head: Fingerprint
    head_newest: Fingerprint

    @property
    def head_files(self) -> list[Path]:
        """The landed files on top of the tail."""
        return sorted(set(self.whole.files) - set(self.tail.files))

    @property
    def merged_files(self) -> list[Path]:
        """The same records merged to level 1."""
        return sorted(set(self.merged.files) - set(self.tail.files))

    @contextmanager
    def copy(self, name: str, state: State, **properties: str) -> Iterator[str]:
        """As ``copy_of`` the table with this ``state``."""
        with copy_of(self.lake, name, state.metadata, **properties) as identifier:
            yield identifier

    def live(self, identifier: str) -> list[Path]:
        """The data files that a reader of ``identifier`` reads."""
        return live(self.lake, identifier)


@contextmanager
def copy_of(lake: Lake, name: str, metadata: str, **properties: str) -> Iterator[str]:
    """A table of its own over the files of a metadata file; afterwards it is gone with all files written for it.

    ``properties`` are set on it, with underscores for dots. What an interrupted run left under its name goes first.
    """
    identifier = f"{NAMESPACE}.{name}"
    _drop(lake, identifier)
    table = lake.catalog.register_table(identifier, metadata)
    folder = local(table.location()) / "data"
    before = set(folder.rglob("*.parquet"))
    try:
        if properties:
            lake.set_properties(identifier, {key.replace("_", "."): value for key, value in properties.items()})
        yield identifier
    finally:
        _drop(lake, identifier)
        for path in set(folder.rglob("*.parquet")) - before:
            path.unlink()


def _drop(lake: Lake, identifier: str) -> None:
    """Drop a table, and those that go with it, if they are there."""
    for table in lake.tables(NAMESPACE):
        if table == identifier or table.startswith(f"{identifier}__"):
            lake.catalog.drop_table(table)


def local(location: str) -> Path:
    """The file or folder that a ``file:`` location means."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def live(lake: Lake, identifier: str) -> list[Path]:
    """The data files of the current snapshot of ``identifier``; none of them has row-level deletes."""
    tasks = list(lake.table(identifier).scan().plan_files())
    assert not any(task.delete_files for task in tasks), f"{identifier} has row-level deletes"
    return sorted(local(task.file.file_path) for task in tasks)


def append_all(lake: Lake, identifier: str, shape: Shape, one: Stream) -> None:
    """Append all records of ``one``, in commits of about LANDED_BYTES."""
    step = LANDED_BYTES // (KEY_BYTES + shape.value_bytes)
    for start, stop in slices(len(one), -(-len(one) // step)):
        lake.table(identifier).append(batches(shape, one, start, stop, level=None))


def prepare(lake: Lake, shape: Shape, engine: Engine) -> Inputs:
    """The inputs of ``shape``: from disk if they are there, else made now. Every file is read once: all are warm."""
    home = lake.home / f"v{VERSION}"
    facts = home / f"{shape.name}.json"
    if not facts.exists():
        home.mkdir(parents=True, exist_ok=True)
        made = _make(lake, shape, engine)
        facts.write_text(json.dumps(_as_json(made), indent=1), encoding="utf-8")
    inputs = _from_json(lake, shape, json.loads(facts.read_text(encoding="utf-8")))
    for path in {*inputs.whole.files, *inputs.merged.files}:
        path.read_bytes()
    return inputs


def run_lane(lake: Lake, identifier: str, lane: Lane, engine: Engine, now_ms: int = NOW_MS - 1) -> None:
    """Plan, compact, validate, publish and sweep; raises RuntimeError unless something was published."""
    for result in run(lake, identifier, now_ms, lambda _: engine, [lane], force=True):
        if result.failures or not result.publications:
            raise RuntimeError(f"{identifier}, lane {lane}: {result.failures or 'nothing was published'}")


def streams(shape: Shape) -> list[Stream]:
    """The records of every partition, without their values."""
    return [stream(shape, partition) for partition in range(shape.partitions)]


def _make(lake: Lake, shape: Shape, engine: Engine) -> Inputs:
    identifier = f"{NAMESPACE}.{shape.name}"
    if identifier in lake.tables(NAMESPACE):
        folder = local(lake.table(identifier).location())
        lake.catalog.drop_table(identifier)
        shutil.rmtree(folder, ignore_errors=True)
    segment_bytes = _create(lake, identifier, shape)
    parts = streams(shape)
    per_record = shape.value_bytes + KEY_BYTES
    tail, whole, merged = (
        _landed(lake, identifier, shape, parts) if shape.landed else _cleaned(lake, identifier, shape, parts, engine)
    )
    head = sorted(set(whole.files) - set(tail.files))
    return Inputs(
        lake=lake,
        shape=shape,
        segment_bytes=segment_bytes,
        records=sum(len(part) for part in parts),
        raw_bytes=sum(len(part) * per_record - int(part.tombstones.sum()) * shape.value_bytes for part in parts),
        tail=tail,
        whole=whole,
        merged=merged,
        everything=check.fingerprint(whole.files),
        newest=check.fingerprint(whole.files, _offsets(parts, [part.survivors() for part in parts])),
        head=check.fingerprint(head),
        head_newest=check.fingerprint(
            head,
            _offsets(parts, [part.survivors() if shape.landed else part.head_survivors() for part in parts]),
        ),
    )


def head_and_tail(lake: Lake, identifier: str, shape: Shape, engine: Engine) -> pa.Table:
    """Make table ``identifier`` on any ``lake``: the tail of ``shape`` and its head on top.

    Returns partition and offset of the records that a full clean leaves.
    """
    _create(lake, identifier, shape)
    parts = streams(shape)
    _land_tail(lake, identifier, shape, parts, engine)
    _land(lake, identifier, shape, parts, HEAD_COMMITS, tail=False)
    return _offsets(parts, [part.survivors() for part in parts])


def _create(lake: Lake, identifier: str, shape: Shape) -> int:
    """Make the table; returns the bytes at which its segments are closed."""
    # The tail's size on disk is not known yet: values are half letters of 6 bits, keys and offsets are small.
    tail_bytes = shape.records * (shape.value_bytes * 0.4 + KEY_BYTES / 2)
    segment_bytes = max(SMALLEST_SEGMENT, int(tail_bytes / max(shape.segments, shape.partitions)))
    records.create(
        lake,
        identifier,
        {
            "firn.segment.bytes": str(segment_bytes),
            "firn.merge.segments": str(HEAD_COMMITS // 2),
            "write.target-file-size-bytes": str(segment_bytes),
            "write.parquet.compression-level": str(ZSTD_LEVEL),
        },
    )
    return segment_bytes


def _land_tail(lake: Lake, identifier: str, shape: Shape, parts: Sequence[Stream], engine: Engine) -> None:
    """Land the tail's records and clean them."""
    commits = max(1, shape.records * (shape.value_bytes + KEY_BYTES) // LANDED_BYTES)
    _land(lake, identifier, shape, parts, commits, tail=True)
    run_lane(lake, identifier, Lane.FULL, engine)


def _cleaned(
    lake: Lake, identifier: str, shape: Shape, parts: Sequence[Stream], engine: Engine
) -> tuple[State, State, State]:
    """The table with its tail alone, with the head on top, and with that head merged."""
    _land_tail(lake, identifier, shape, parts, engine)
    tail = _state(lake, identifier)
    _land(lake, identifier, shape, parts, HEAD_COMMITS, tail=False)
    whole = _state(lake, identifier)
    run_lane(lake, identifier, Lane.MERGE, engine)
    return tail, whole, _state(lake, identifier)


def _landed(lake: Lake, identifier: str, shape: Shape, parts: Sequence[Stream]) -> tuple[State, State, State]:
    """The same where everything has just landed: there is no tail, and nothing is merged."""
    tail = _state(lake, identifier)
    for older in (True, False):
        _land(lake, identifier, shape, parts, shape.landed // 2, tail=older)
    whole = _state(lake, identifier)
    return tail, whole, whole


def _land(lake: Lake, identifier: str, shape: Shape, parts: Sequence[Stream], commits: int, tail: bool) -> None:
    ranges = [
        [
            (start + (0 if tail else part.tail), stop + (0 if tail else part.tail))
            for start, stop in slices(size, commits)
        ]
        for part in parts
        for size in [part.tail if tail else len(part) - part.tail]
    ]
    for number in range(max(len(one) for one in ranges)):
        rows = [
            batches(shape, part, *own[number], level=None)
            for part, own in zip(parts, ranges, strict=True)
            if number < len(own)
        ]
        lake.table(identifier).append(pa.concat_tables(rows))


def _state(lake: Lake, identifier: str) -> State:
    return State(lake.table(identifier).metadata_location, tuple(live(lake, identifier)))


def _offsets(parts: Sequence[Stream], kept: Sequence[Flags]) -> pa.Table:
    tables = []
    for part, mask in zip(parts, kept, strict=True):
        offsets = part.offsets[mask]
        tables.append(
            pa.table({"partition": pa.repeat(pa.scalar(part.partition, pa.int32()), len(offsets)), "offset": offsets})
        )
    return pa.concat_tables(tables)


_STATES = ("tail", "whole", "merged")
_PRINTS = ("everything", "newest", "head", "head_newest")


def _as_json(made: Inputs) -> dict[str, object]:
    states = {name: getattr(made, name) for name in _STATES}
    return {
        "shape": asdict(made.shape),
        "segment_bytes": made.segment_bytes,
        "records": made.records,
        "raw_bytes": made.raw_bytes,
        **{
            name: {"metadata": one.metadata, "files": [str(path) for path in one.files]} for name, one in states.items()
        },
        **{name: asdict(getattr(made, name)) for name in _PRINTS},
    }


def _from_json(lake: Lake, shape: Shape, facts: dict[str, object]) -> Inputs:
    plain = {name: facts[name] for name in ("segment_bytes", "records", "raw_bytes")}
    states = {
        name: State(one["metadata"], tuple(Path(path) for path in one["files"]))
        for name in _STATES
        if isinstance(one := facts[name], dict)
    }
    prints = {name: Fingerprint(**one) for name in _PRINTS if isinstance(one := facts[name], dict)}
    return Inputs(lake=lake, shape=shape, **plain, **states, **prints)  # type: ignore[arg-type]
