"""D2: a landing that ends before its commit was sent leaves no file, and holds one file in memory at a time."""

import json
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.errors import OutcomeUnknownError, RefusedError, UnavailableError
from firnlake.iceberg.files import data_folder
from firnlake.ingest.land import land
from infra.foreign.files import files_under, on_disk
from tests.support.faults import Forgetful, Nth, through, watched
from tests.support.topics import Record, Topic, updates


def landing_file(topic: Topic, path: Path, *records: Record) -> Path:
    pq.write_table(topic.arrow(records), path)
    return path


def small(topic: Topic, folder: Path, number: int = 3) -> list[Path]:
    return [landing_file(topic, folder / f"{one}.parquet", *updates("a=1", start=one)) for one in range(number)]


def large(topic: Topic, path: Path, size: int = 1 << 20) -> Path:
    return landing_file(topic, path, Record(100, b"k", random.Random(1).randbytes(size)))  # noqa: S311


def left(topic: Topic) -> set[Path]:
    """The data files below the table that no snapshot needs: nothing has landed."""
    assert topic.rows() == []
    return files_under(on_disk(data_folder(topic.lake.table(topic.table))))


@contextmanager
def full_disk(size: int = 1 << 17) -> Iterator[None]:
    """A limit on file sizes stands for a full disk: to the writer, both are a failed write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)


def test_d2_a_full_disk_is_as_full_as_before(topic: Topic, tmp_path: Path) -> None:
    paths = [*small(topic.create(), tmp_path), large(topic, tmp_path / "large.parquet")]
    for _ in range(2):
        with full_disk(), pytest.raises(UnavailableError, match=r"a segment can't be written: .*; nothing was landed"):
            land(topic.lake, topic.table, paths)
        assert left(topic) == set()
    assert land(topic.lake, topic.table, paths).records == 4


def test_d2_so_is_one_that_gets_full_with_the_manifest(topic: Topic, tmp_path: Path) -> None:
    """The manifest names 40 files, and is larger than each of them."""
    paths = small(topic.create(), tmp_path, 40)
    with full_disk(6 << 10), pytest.raises(UnavailableError, match=r"the store of catalog .* failed"):
        land(topic.lake, topic.table, paths)
    assert left(topic) == set()


def lost_table(topic: Topic) -> Callable[[], None]:
    return lambda: topic.lake.set_properties(topic.table, {"firn.columns": "{}"})


def test_d2_nor_does_a_landing_that_is_refused_at_its_commit(topic: Topic, tmp_path: Path) -> None:
    paths = small(topic.create(), tmp_path)
    adopted = Nth(2, lost_table(topic), only="before load")
    with pytest.raises(RefusedError, match="is adopted"):
        land(watched(topic.lake, adopted), topic.table, paths)
    assert adopted.acted
    assert left(topic) == set()


def test_d2_nor_does_one_whose_last_file_is_refused(topic: Topic, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": 1}')
    with pytest.raises(RefusedError, match=r"bad\.jsonl"):
        land(topic.create().lake, topic.table, [*small(topic, tmp_path), tmp_path / "bad.jsonl"])
    assert left(topic) == set()


@pytest.mark.parametrize("down", ["yes", "no"])
def test_d2_what_a_sent_commit_may_name_stays(topic: Topic, tmp_path: Path, down: str) -> None:
    paths = small(topic.create(), tmp_path)
    if down == "yes":
        with pytest.raises(OutcomeUnknownError):
            land(through(topic.lake, Forgetful(down)), topic.table, paths)
    else:
        land(through(topic.lake, Forgetful(down)), topic.table, paths)
    assert topic.offsets() == [0, 1, 2]


def test_d2_no_file_is_in_memory_once_it_is_written(topic: Topic, tmp_path: Path) -> None:
    size = 8 << 20
    paths = [large(topic, tmp_path / f"{number}.parquet", size + number) for number in range(3)]
    before, seen = pa.total_allocated_bytes(), list[int]()
    lake = watched(
        topic.create().lake, lambda call: seen.append(pa.total_allocated_bytes()) if "commit" in call else None
    )
    land(lake, topic.table, paths)
    assert max(seen) - before < size
    assert len(topic.rows()) == 3


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_d2_texts_leave_nothing_either(topic: Topic, tmp_path: Path, suffix: str) -> None:
    bad = tmp_path / f"bad{suffix}"
    bad.write_text("topic,key\n" if suffix == ".csv" else json.dumps({"topic": 1}))
    with pytest.raises(RefusedError, match=bad.name):
        land(topic.create().lake, topic.table, [*small(topic, tmp_path), bad])
    assert left(topic) == set()
