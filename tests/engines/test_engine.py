"""Engines: one contract on threads and on Spark, which of them a command gets, and what is said of Spark that fails."""

import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import (
    BYTES_PER_GROUP,
    MOST_ROUNDS,
    Engine,
    Engines,
    LocalEngine,
    WorkerLostError,
    attempt,
    balanced,
)
from firnlake.engine.spark import SparkEngine, ends_with_command, obstacle, reason, shown, start
from firnlake.errors import RefusedError
from tests.support.engine_contract import EngineContract, SparkContract, die_on, square

NUMBER = "number bigint"


class TestThreads(EngineContract):
    @pytest.fixture(params=[1, 5])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        return LocalEngine(request.param)


@pytest.mark.usefixtures("spark")
class TestSpark(SparkContract):
    """On the session of this process, as `firn` would start it."""

    @pytest.fixture
    def engine(self) -> SparkEngine:
        return SparkEngine(start("firn engine tests"))

    @pytest.mark.parametrize("times", [1, 2])
    def test_c20_a_job_whose_worker_dies_runs_once_more(self, engine: SparkEngine, tmp_path: Path, times: int) -> None:
        rows = engine.read([partial(one_row, tmp_path, times)], NUMBER)
        found = attempt(engine.written, rows, iter, NUMBER, "deadly")
        assert isinstance(found, WorkerLostError) == (times == 2)
        assert times == 1 or str(found).startswith("deadly: the Spark worker that ran it died")

    @pytest.mark.usefixtures("engine")
    def test_spark_is_started_once_and_told_of(self) -> None:
        told: list[str] = []
        engines = Engines("spark", "firn tests", tell=told.append)
        assert engines.of(1) is engines.of(2**40)
        assert engines.of(1).parallelism == 2
        assert len(told) == 1


def one_row(folder: Path, times: int) -> Iterator[pa.RecordBatch]:
    """Ends its process the first ``times`` times."""
    before = len(list(folder.iterdir()))
    (folder / str(before)).touch()
    die_on(1, int(before < times))
    yield pa.RecordBatch.from_pydict({"number": [7]})


def test_tasks_run_at_the_same_time_and_the_heaviest_starts_first() -> None:
    assert LocalEngine().parallelism == os.cpu_count()
    meeting = threading.Barrier(3, timeout=30)
    assert sorted(map(str, LocalEngine(3).map(lambda _: meeting.wait(), [0, 1, 2]))) == ["0", "1", "2"]
    order: list[str] = []
    LocalEngine(1).map(order.append, ["light", "heavy", "middle"], weights=[1, 9, 5])
    assert order == ["heavy", "middle", "light"]


def test_an_exit_within_a_task_goes_up() -> None:
    def leave(number: int) -> None:
        raise SystemExit(number)

    with pytest.raises(SystemExit):
        LocalEngine(2).map(leave, [1, 2, 3])


def test_it_works_in_a_forked_child(tmp_path: Path) -> None:
    engine = LocalEngine(2)
    engine.map(square, [1, 2, 3])
    child = os.fork()
    if not child:
        (tmp_path / "found").write_text(str(engine.map(square, [4, 5])))
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "found").read_text() == "[16, 25]"


@given(weights=st.lists(st.integers(0, 2**40), max_size=60), workers=st.integers(1, 8))
def test_every_task_is_in_one_group(weights: list[int], workers: int) -> None:
    groups = balanced(weights, workers)
    assert sorted(position for group in groups for position in group) == list(range(len(weights)))
    assert all(groups)
    assert len(groups) <= workers * MOST_ROUNDS


def test_groups_are_as_heavy_as_each_other_and_no_more_than_needed() -> None:
    assert [len(group) for group in balanced([100] * 256, 2)] == [128, 128]
    assert sorted(len(group) for group in balanced([0] * 10, 4)) == [2, 2, 3, 3], "of no known weight"
    assert len(balanced([BYTES_PER_GROUP] * 100, 2)) == 2 * MOST_ROUNDS
    groups = balanced([3, 9, 1, 5, 2], 2)
    assert groups[0][0] == 1, "the heaviest comes first"
    assert [sum((3, 9, 1, 5, 2)[position] for position in group) for group in groups] == [10, 10]


def test_the_size_decides_unless_somebody_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRN_ENGINE", "FIRN_LOCAL_MAX_BYTES"):
        monkeypatch.delenv(name, raising=False)
    assert Engines().choice == "auto"
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "100")
    with Engines("auto") as engines:
        assert isinstance(engines.of(99), LocalEngine)
    with Engines("local") as engines:
        assert isinstance(engines.of(2**50), LocalEngine)
    monkeypatch.setenv("FIRN_ENGINE", "local")
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "2000")
    assert (Engines().choice, Engines("auto").choice, Engines().local_max_bytes) == ("local", "auto", 2000)
    with pytest.raises(RefusedError, match=r"engine 'flink'; allowed: spark, local, auto"):
        Engines("flink")
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "2 GB")
    with pytest.raises(RefusedError, match=r"FIRN_LOCAL_MAX_BYTES is '2 GB'; allowed: a number of bytes"):
        Engines("auto")


@pytest.mark.parametrize("java_home", ["/no/such/java", ""])
def test_auto_takes_local_where_java_is_missing_and_says_so_once_and_spark_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java_home: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_home)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    said: list[str] = []
    monkeypatch.setenv("FIRN_LOCAL_MAX_BYTES", "100")
    with Engines("auto", tell=said.append) as engines:
        assert all(isinstance(engines.of(size), LocalEngine) for size in (10, 1000, 2000))
    (line,) = said
    assert line.startswith("1,000 bytes are compacted in this process: ")
    assert "Java 17 or newer" in line
    with Engines("spark") as engines, pytest.raises(RefusedError, match=r"Java 17 or newer.*--engine local"):
        engines.of(1)


GRPC = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: Connection refused (111)"
\tdebug_error_string = "UNKNOWN:Error received from peer"
>"""
JAVA = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Job.run(Job.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.io.FileOutputStream.write"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (GRPC, "failed to connect to all addresses; last error: UNKNOWN: Connection refused (111)"),
        (JAVA, "java.io.IOException: No space left on device"),
        ("", "Exception"),
    ],
)
def test_r29_the_reason_is_the_innermost_cause(text: str, cause: str) -> None:
    assert reason(Exception(text)) == cause


def test_c26_what_an_address_of_spark_means(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("local[2]", "spark://one:7077"):
        monkeypatch.setenv("SPARK_REMOTE", value)
        with pytest.raises(RefusedError, match=r"SPARK_REMOTE is '.*'; allowed: .* Spark Connect server, sc://"):
            start("firn test")
    for address, ends in (("sc://one", True), ("sc://one/;token=a;session_id=42", False)):
        monkeypatch.setenv("SPARK_REMOTE", address)
        assert ends_with_command() is ends, "a session that others may use is not ended"
    assert shown("sc://one:15002/;token=open-sesame") == "sc://one:15002"
    for address in ("local[2]", "yarn", "k8s://https://nowhere.invalid", "spark://one:port"):
        assert obstacle(address) is None, "Spark alone can tell"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert obstacle(f"spark://127.0.0.1:1,127.0.0.1:{listening.getsockname()[1]}") is None
    assert obstacle("spark://127.0.0.1:1,127.0.0.1:2") == "Connection refused"
