"""C30: verify searches with the key itself: nothing is there, something is, or it landed again."""

import shutil
from dataclasses import replace

import pytest

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.certify import VerifiedCertificate, certify, verify
from firnlake.lanes.erasure.memory import change_erasures
from infra.foreign.files import on_disk
from tests.support.lakes import TABLE, append, append_file, row
from tests.support.proving import ENGINE, erase, expire, request


def check(lake: Lake, key: bytes = b"a", topic: str | None = None) -> VerifiedCertificate:
    return verify(lake, TABLE, [key], ENGINE, topic)


@pytest.fixture
def file(lake: Lake, table: str) -> str:
    """A file with key a, which is requested."""
    assert table == TABLE
    path = append_file(lake, [row(0, b"a"), row(1, b"b")])
    append(lake, [row(2, b"c")])
    request(lake, b"a")
    return path


@pytest.fixture
def certified(lake: Lake, file: str) -> str:
    """The certificate is issued; a copy of the file is kept in the working folder."""
    shutil.copy(on_disk(file), "kept.parquet")
    erase(lake, b"a")
    expire(lake)
    return file


@pytest.mark.usefixtures("certified")
class TestCertified:
    def test_it_holds(self, lake: Lake) -> None:
        found = check(lake)
        assert (found.holds, found.landed_again, found.requests) == (True, False, (1,))

    def test_a_newer_record_is_told_as_such(self, lake: Lake) -> None:
        append(lake, [row(9, b"a")])
        found = check(lake)
        assert (found.holds, found.landed_again, found.landed_before) == (True, True, False)

    def test_a_late_record_breaks_it(self, lake: Lake) -> None:
        append(lake, [row(0, b"a")])
        found = check(lake)
        assert (found.holds, found.landed_again) == (False, False)
        assert [one.kind for one in found.blockers] == ["head"]

    def test_an_orphan_breaks_it(self, lake: Lake) -> None:
        shutil.copy("kept.parquet", on_disk(lake.table(TABLE).location()) / "back.parquet")
        assert [one.kind for one in check(lake).blockers] == ["orphan"]

    def test_a_changed_document_does_not_hold(self, lake: Lake) -> None:
        change_erasures(
            lake,
            TABLE,
            lambda old: replace(
                old, certificates=tuple(replace(one, document='{"request": 1}') for one in old.certificates)
            ),
        )
        found = check(lake)
        assert (found.is_intact, found.holds) == (False, False)


def test_without_a_certificate_it_does_not_hold(lake: Lake, file: str) -> None:
    assert file
    found = check(lake)
    assert (found.certificate, found.holds) == (None, False)
    assert {one.kind for one in found.blockers} == {"head", "snapshot"}


def test_a_newer_record_before_the_certificate(lake: Lake, file: str) -> None:
    assert file
    erase(lake, b"a")
    append(lake, [row(9, b"a")])
    expire(lake)
    certify(lake, TABLE, clock.now_ms(), ENGINE)
    found = check(lake)
    assert (found.holds, found.landed_again) == (True, True)


@pytest.mark.parametrize(("key", "topic"), [(b"b", None), (b"a", "users")])
def test_c26_a_key_that_nobody_requested_is_refused(lake: Lake, file: str, key: bytes, topic: str | None) -> None:
    assert file
    with pytest.raises(RefusedError, match="no request names this key; allowed: a key given to firn erase"):
        check(lake, key, topic)


def test_c26_a_table_without_requests_is_refused(lake: Lake, table: str) -> None:
    append(lake, [row(0)], table)
    with pytest.raises(RefusedError, match="no request names this key"):
        check(lake)
