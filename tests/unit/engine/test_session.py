"""Messages about a Spark session that does not start."""

import socket

import pytest

from firnlake.engine.session import ends_with_command, obstacle, shown, start
from firnlake.engine.spark import reason
from firnlake.errors import RefusedError

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


@pytest.mark.parametrize("value", ["local[2]", "spark://one:7077"])
def test_c26_a_remote_that_is_no_connect_server_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SPARK_REMOTE", value)
    with pytest.raises(RefusedError, match=r"SPARK_REMOTE is '.*'; allowed: .* Spark Connect server, sc://"):
        start("firn test")


@pytest.mark.parametrize(("address", "ends"), [("sc://one", True), ("sc://one/;token=a;session_id=42", False)])
def test_a_session_that_others_may_use_is_not_ended(monkeypatch: pytest.MonkeyPatch, address: str, ends: bool) -> None:
    monkeypatch.setenv("SPARK_REMOTE", address)
    assert ends_with_command() is ends


@pytest.mark.parametrize("address", ["local[2]", "yarn", "k8s://https://nowhere.invalid", "spark://one:port"])
def test_spark_alone_can_tell_of_other_addresses(address: str) -> None:
    assert obstacle(address) is None


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert obstacle(f"spark://127.0.0.1:1,127.0.0.1:{listening.getsockname()[1]}") is None
    assert obstacle("spark://127.0.0.1:1,127.0.0.1:2") == "nothing listens there"


def test_an_address_is_shown_without_its_token() -> None:
    assert shown("sc://one:15002/;token=open-sesame") == "sc://one:15002"
