"""The choice of a command's engine, and what is said of a Spark that can't be used."""

import socket
from pathlib import Path

import pytest

from firnlake.engine.choice import Engines
from firnlake.engine.session import ends_with_command, obstacle, shown, start
from firnlake.engine.spark import reason
from firnlake.errors import RefusedError


def test_the_size_decides_unless_somebody_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRN_ENGINE", "FIRN_LOCAL_MAX_BYTES"):
        monkeypatch.delenv(name, raising=False)
    assert Engines().choice == "auto"
    with Engines("auto", local_max_bytes=100) as engines:
        assert engines.of(99).name == "local"
    with Engines("local") as engines:
        assert engines.of(2**50).name == "local"
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
    with Engines("auto", local_max_bytes=100, tell=said.append) as engines:
        assert [engines.of(size).name for size in (10, 1000, 2000)] == ["local"] * 3
    (line,) = said
    assert line.startswith("1,000 bytes are compacted in this process: ")
    assert "Java 17 or newer" in line
    with Engines("spark") as engines, pytest.raises(RefusedError, match=r"Java 17 or newer.*--engine local"):
        engines.of(0)


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
        ("one line", "one line"),
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
    assert obstacle("spark://127.0.0.1:1,127.0.0.1:2") == "nothing listens there"
