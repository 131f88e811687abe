"""erase records requests, and shows nothing that the person did not type."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.memory import read_erasures
from tests.support.in_process import Firn, refused
from tests.support.lakes import NOW, append, row
from tests.support.proving import erase, expire


def test_a_request_is_told(firn: Firn, landed: str, lake: Lake) -> None:
    ran = firn("erase", landed, "--key", "k", "--within", "30d", "--now", NOW)
    assert (ran.code, ran.err) == (0, "")
    assert "lake.records: request 1: 1 key in orders-0 below offset 2" in ran.out
    assert "to be erased by 2023-12-14T22:13:20.000Z (in 30 d)" in ran.out.replace("\n", " ")
    (request,) = read_erasures(lake.table(landed)).requests
    assert (request.id, request.below) == (1, 2)


def test_programs_read_json(firn: Firn, landed: str) -> None:
    found = firn("erase", landed, "--topic", "orders", "--key", "k", "--within", "12h", "--now", NOW, "--json").json
    assert found == {
        "request": 1,
        "keys": 1,
        "topic": "orders",
        "below": {"orders-0": 2},
        "requested_before": 0,
        "deadline": "2023-11-15T10:13:20.000Z",
        "expire_history": False,
    }


def test_c25_the_same_request_is_told(firn: Firn, landed: str) -> None:
    firn("erase", landed, "--key", "k", "--now", NOW)
    ran = firn("erase", landed, "--key", "k", "--now", NOW)
    assert ran.code == 0
    assert "earlier requests already cover every given key; nothing was changed" in ran.out


def test_several_keys_are_one_request(firn: Firn, landed: str, lake: Lake) -> None:
    assert "request 1: 2 keys" in firn("erase", landed, "--key", "k", "--key", "a,b").out
    assert len(read_erasures(lake.table(landed)).requests) == 2


def test_keys_of_a_file(firn: Firn, landed: str, lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(b"k\r\nhex:6c\ntext:\n")
    assert "request 1: 3 keys" in firn("erase", landed, "--keys", path).out
    assert len(read_erasures(lake.table(landed)).requests) == 3
    assert "nothing was changed" in firn("erase", landed, "--key", "l", "--within", "31d").out, "l is hex:6c"
    assert "nothing was changed" in firn("erase", landed, "--key", "text:", "--within", "31d").out, "the empty key"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty; allowed: one key per line"),
        (b"k\n\nl\n", "line 2 is not a key: ''; allowed: a key (write the empty key as `text:`)"),
        (b"null:\n", "line 1 is not a key: 'null:'"),
        (b"\xff\n", "is not UTF-8"),
        (b"k\nhex:0\n", "keys.txt, line 2: key 'hex:0' is not hex:"),
    ],
)
def test_c26_a_bad_file_is_refused(firn: Firn, landed: str, tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_bytes(content)
    refused(firn("erase", landed, "--keys", path), text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--key", "null:"), "'null:' is not a key; allowed: a key"),
        (("--key", "k", "--topic", "users"), "holds no record of topic 'users'; allowed: one of orders"),
        (
            ("--key", "k", "--within", "soon"),
            "'soon' is not a duration; allowed: a number with a unit (d, h, min, s, ms)",
        ),
        (("--key", "k", "--within", "0d"), "0 ms is not a valid time for an erasure; allowed: 1 to 3155760000000 ms"),
        (("--keys", "none.txt"), "file none.txt can't be read: No such file"),
    ],
)
def test_c26_a_wrong_request_is_refused(firn: Firn, landed: str, arguments: tuple[str, ...], text: str) -> None:
    refused(firn("erase", landed, *arguments), text)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--key", "k", "--keys", "keys.txt"),
        ("--status", "--certify"),
        ("--status", "--key", "k"),
        ("--verify",),
        ("--verify", "--keys", "keys.txt"),
        ("--verify", "--key", "k", "--key", "l"),
    ],
)
def test_wrong_usage_is_exit_code_2(firn: Firn, landed: str, arguments: tuple[str, ...]) -> None:
    assert firn("erase", landed, *arguments).code == 2


class TestStatus:
    def test_without_requests(self, firn: Firn, landed: str) -> None:
        assert "no request to erase a key" in firn("erase", landed, "--status").out

    def test_blockers_are_told_with_what_lifts_them(self, firn: Firn, landed: str) -> None:
        firn("erase", landed, "--key", "k")
        out = firn("erase", landed, "--status").out
        assert "0 of 1 partition" in out
        assert "request 1: batch orders-0: the request waits for other requests, so that one search serves" in out

    def test_programs_read_json(self, firn: Firn, landed: str) -> None:
        firn("erase", landed, "--key", "k", "--now", NOW)
        firn("erase", landed, "--key", "l", "--now", NOW)
        (found,) = firn("erase", landed, "--status", "--request", "2", "--now", NOW, "--json").json
        assert (found["request"], found["state"], found["waiting"]) == (2, "open", ["orders-0"])
        (blocker,) = found["blockers"]
        assert (blocker["kind"], blocker["until"]) == ("batch", "2023-11-14T23:13:20.000Z")

    def test_c26_an_unknown_request_is_refused(self, firn: Firn, landed: str) -> None:
        refused(
            firn("erase", landed, "--status", "--request", "1"),
            "has no request 1; allowed: none, as nothing was requested",
        )


class TestProof:
    @pytest.fixture
    def erased(self, firn: Firn, landed: str, lake: Lake) -> str:
        append(lake, [row(5, b"z")])
        firn("erase", landed, "--key", "k")
        erase(lake, b"k")
        return landed

    def test_a_certificate_is_withheld_with_its_reasons(self, firn: Firn, erased: str) -> None:
        ran = firn("erase", erased, "--certify")
        assert ran.code == 1
        assert "request 1: no certificate" in ran.out
        assert "request 1: snapshot older than the head of branch main: file:" in ran.out
        assert " has 1 record that request 1 asks to erase" in ran.out
        found = firn("erase", erased, "--certify", "--json")
        assert (found.json["issued"], found.json["blocked"][0]["request"]) == ([], 1)

    def test_it_is_issued_and_verified(self, firn: Firn, erased: str, lake: Lake) -> None:
        expire(lake)
        assert "no request is waiting for a certificate" in firn("erase", erased, "--certify").out
        ran = firn("erase", erased, "--verify", "--key", "k")
        assert ran.code == 0
        assert "the certificate of request 1, " in ran.out
        assert ran.out.strip().endswith("holds")

    def test_a_key_that_landed_again_is_told(self, firn: Firn, erased: str, lake: Lake) -> None:
        expire(lake)
        append(lake, [row(9, b"k")])
        ran = firn("erase", erased, "--verify", "--key", "k")
        assert ran.code == 1
        assert "landed again after its certificate" in ran.out
        found = firn("erase", erased, "--verify", "--key", "k", "--json").json
        assert (found["holds"], found["landed_again"], found["blockers"]) == (True, True, [])

    def test_a_breach_is_told(self, firn: Firn, erased: str, lake: Lake) -> None:
        expire(lake)
        append(lake, [row(0, b"k")])
        ran = firn("erase", erased, "--verify", "--key", "k")
        assert ran.code == 1
        assert "does not hold" in ran.out
        assert "head main: file:" in ran.out
        assert " has 1 record that request 1 asks to erase" in ran.out
