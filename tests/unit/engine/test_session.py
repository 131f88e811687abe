"""Messages about a Spark session that does not start."""

import socket
import threading

import pytest

from firnlake.engine.reach import obstacle, shown, within
from firnlake.engine.session import start
from firnlake.engine.spark import reason
from firnlake.errors import RefusedError, UnavailableError

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


def test_what_is_not_ready_in_time_is_given_up() -> None:
    never = threading.Event()
    with pytest.raises(UnavailableError, match="not ready after 1 s"):
        within(1, "starting Spark", never.wait)
    never.set()


def test_results_and_errors_of_a_start_arrive() -> None:
    assert within(10, "starting Spark", lambda: 42) == 42
    with pytest.raises(TimeoutError, match="of Spark's own"):
        within(10, "starting Spark", lambda: (_ for _ in ()).throw(TimeoutError("of Spark's own")))


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5", "86401"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("FIRN_SPARK_START_SECONDS", value)
    monkeypatch.setenv("SPARK_REMOTE", "sc://nowhere.invalid")
    with pytest.raises(RefusedError, match=rf"FIRN_SPARK_START_SECONDS is '{value}'; allowed: a number of seconds"):
        start("firn test")


@pytest.mark.parametrize("address", ["local[2]", "yarn", "k8s://https://nowhere.invalid", "spark://one:port"])
def test_spark_alone_can_tell_of_other_addresses(address: str) -> None:
    assert obstacle(address) is None


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert obstacle(f"spark://127.0.0.1:1,127.0.0.1:{listening.getsockname()[1]}") is None
    assert obstacle("spark://127.0.0.1:1,127.0.0.1:2") == "nothing listens there"


def test_an_address_is_shown_without_its_token() -> None:
    assert shown("sc://one:15002/;token=open-sesame") == "sc://one:15002"
