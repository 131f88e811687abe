"""A landing that a full disk ends leaves no file, and a landing holds one file in memory at a time."""

import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from firnlake.door import OpenCatalog
from firnlake.errors import UnavailableError
from infra.foreign.files import files_under, on_disk
from tests.support.faults import watched
from tests.support.records import Record
from tests.support.scenario import Scenario


def small(scenario: Scenario, number: int = 3) -> list[Path]:
    return [scenario.landing_file(batch) for batch in scenario.batches(" | ".join(["a=1"] * number))]


def large(scenario: Scenario, size: int) -> Path:
    return scenario.landing_file([Record(100, b"k", random.Random(size).randbytes(size))])  # noqa: S311


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """A limit on file sizes stands for a full disk: to the writer, both are a failed write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)


def assert_nothing_landed(scenario: Scenario) -> None:
    assert scenario.answer("read") == ["no record"]
    assert [path for path in files_under(on_disk(scenario.loaded().location())) if path.suffix == ".parquet"] == []


def test_a_full_disk_is_as_full_as_before(scenario: Scenario) -> None:
    paths = [*small(scenario), large(scenario, 1 << 20)]
    for _ in range(2):
        with full_disk(1 << 17), pytest.raises(UnavailableError, match=r"a segment can't be written: .*nothing was la"):
            scenario.table.land(*paths)
        assert_nothing_landed(scenario)
    assert scenario.table.land(*paths).records == 4


def test_so_is_one_that_gets_full_with_the_manifest(scenario: Scenario) -> None:
    """The manifest names 40 files, and is larger than each of them."""
    paths = small(scenario, 40)
    with full_disk(6 << 10), pytest.raises(UnavailableError, match=r"the store of catalog .* failed"):
        scenario.table.land(*paths)
    assert_nothing_landed(scenario)


def test_no_file_is_in_memory_once_it_is_written(scenario: Scenario) -> None:
    size = 8 << 20
    scenario.answer("create")
    paths = [large(scenario, size + number) for number in range(3)]
    before, seen = pa.total_allocated_bytes(), list[int]()
    lake = watched(
        scenario.opened.lake, lambda call: seen.append(pa.total_allocated_bytes()) if "commit" in call else None
    )
    OpenCatalog(lake).table(scenario.name).land(*paths)
    assert max(seen) - before < size
    assert len(scenario.rows()) == 3
