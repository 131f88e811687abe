"""C30: a certificate is issued when no file holds the key, not before; it says what was done, and can be checked."""

import hashlib
import json
from pathlib import Path

import pytest
from pyiceberg.table import Table

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from firnlake.lanes.erasure.certificate import content_of, is_intact
from firnlake.lanes.erasure.certify import Certified, certify, kept_versions
from firnlake.maintain.inventory import Blocker
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, append, append_file, row
from tests.support.maintaining import kept
from tests.support.proving import DAY_MS, ENGINE, erase, expire, known, request


@pytest.fixture
def files(lake: Lake, table: str) -> list[str]:
    """Two files of orders-0, the first with key a, and a request for it."""
    assert table == TABLE
    found = [append_file(lake, [row(0, b"a"), row(1, b"b")]), append_file(lake, [row(2, b"c")])]
    request(lake, b"a")
    return found


def issue(lake: Lake, *requests: int, quick: bool = False) -> Certified:
    return certify(lake, TABLE, clock.now_ms(), ENGINE, requests, quick=quick)


class TestIssued:
    def test_c30_it_tells_what_was_erased_and_where_it_was_looked_for(self, lake: Lake, files: list[str]) -> None:
        digest = hashlib.sha256(on_disk(files[0]).read_bytes()).hexdigest()
        size = on_disk(files[0]).stat().st_size
        erase(lake, b"a")
        head = lake.table(TABLE).current_snapshot()
        assert head is not None
        expire(lake)
        (issued,) = known(lake).certificates
        told = content_of(issued)
        assert is_intact(issued)
        assert (told["table"], told["request"], told["in_time"]) == (TABLE, 1, True)
        assert told["table_uuid"] == str(lake.table(TABLE).metadata.table_uuid)
        assert told["digests"] == [known(lake).requests[0].digest.hex()]
        assert told["topic_partitions"] == [{"topic": "orders", "partition": 0, "below_offset": 3}]
        assert told["commits"] == [head.snapshot_id]
        assert told["destroyed_files"] == [{"path": files[0], "bytes": size, "sha256": digest, "records_erased": 1}]
        assert (told["searched"]["files"], told["searched"]["locations"]) == (2, [lake.table(TABLE).location()])
        assert told["object_versions"].startswith("none: a file system")
        assert told["landed_again"] == []

    def test_c30_a_key_that_never_was_gets_one(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, b"b")], table)
        request(lake, b"nobody")
        erase(lake, b"nobody")
        (issued,) = issue(lake).issued
        assert content_of(issued)["destroyed_files"] == []

    def test_c30_a_late_one_says_so(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, b"b")], table)
        request(lake, b"nobody", within_ms=1, now_ms=clock.now_ms() - 10)
        erase(lake, b"nobody")
        (issued,) = issue(lake).issued
        assert content_of(issued)["in_time"] is False

    def test_c25_it_is_issued_once(self, lake: Lake, files: list[str]) -> None:
        assert files
        erase(lake, b"a")
        expire(lake)
        assert issue(lake) == Certified()
        assert len(known(lake).certificates) == 1

    def test_c30_each_request_has_its_own(self, lake: Lake, files: list[str]) -> None:
        assert files
        request(lake, b"c")
        erase(lake, b"a")
        expire(lake)
        done = issue(lake)
        assert [one.request for one in known(lake).certificates] == [1], "request 2 means a record that is there"
        assert done.blocked.keys() == {2}

    def test_a_change_shows(self, lake: Lake, files: list[str]) -> None:
        assert files
        erase(lake, b"a")
        expire(lake)
        (issued,) = known(lake).certificates
        document = json.loads(issued.document)
        document["deadline"] = "2099-01-01T00:00:00Z"
        assert not is_intact(type(issued)(1, 1, json.dumps(document)))
        assert not is_intact(type(issued)(1, 1, "{"))


class TestWithheld:
    def test_c30_while_main_holds_it(self, lake: Lake, files: list[str]) -> None:
        assert files
        assert issue(lake) == Certified(), "lane erase has not searched yet"

    @pytest.mark.parametrize("quick", [False, True])
    def test_c30_while_an_older_snapshot_holds_it(self, lake: Lake, files: list[str], quick: bool) -> None:
        erase(lake, b"a")
        done = issue(lake, quick=quick)
        assert done.issued == ()
        ((found,),) = done.blocked.values()
        assert (found.kind, found.name) == ("snapshot", "older than the head of branch main")
        assert quick or files[0] in found.why

    def test_c30_while_a_tag_holds_it(self, lake: Lake, files: list[str]) -> None:
        table = lake.table(TABLE)
        head = table.current_snapshot()
        assert head is not None
        assert files
        table.manage_snapshots().create_tag(head.snapshot_id, "audit").commit()
        erase(lake, b"a")
        told = kept(expire(lake), Kind.CERTIFICATE)
        assert told["request 1"].startswith("tag audit: it still has file:")
        assert "lifted by: ALTER TABLE … DROP TAG audit, then firn maintain" in told["request 1"]
        lake.table(TABLE).manage_snapshots().remove_tag("audit").commit()
        assert kept(expire(lake), Kind.CERTIFICATE)["request 1"].startswith("issued: ")

    def test_c30_a_topic_partition_without_any_file_needs_history_to_go_only(
        self, lake: Lake, files: list[str]
    ) -> None:
        lake.table(TABLE).delete("offset >= 0")
        assert issue(lake).blocked.keys() == {1}, "older snapshots hold it"
        assert not any(path == files[0] for path in lakes.paths(lake.table(TABLE)))
        assert kept(expire(lake), Kind.CERTIFICATE)["request 1"].startswith("issued: ")

    def test_c26_an_unknown_request_is_refused(self, lake: Lake, files: list[str]) -> None:
        assert files
        with pytest.raises(RefusedError, match="has no request 7; allowed: 1 to 1"):
            issue(lake, 7)

    def test_on_an_object_store_by_the_operators_word_alone(self, lake: Lake, files: list[str]) -> None:
        assert files
        table = lake.table(TABLE)

        def stored(**properties: str) -> str | Blocker:
            moved = table.metadata.model_copy(
                update={"location": "s3://bucket/table", "properties": table.properties | properties}
            )
            return kept_versions(Table(table.name(), moved, table.metadata_location, table.io, lake.catalog), TABLE)

        withheld = stored()
        assert isinstance(withheld, Blocker)
        assert "firn.erase.object.versions = none" in withheld.lifted_by
        assert stored(**{"firn.erase.object.versions": "none"}) == (
            "none, as the operator declares (firn.erase.object.versions = none)"
        )


class TestCare:
    def test_a_dry_run_issues_nothing(self, lake: Lake, files: list[str]) -> None:
        assert files
        erase(lake, b"a")
        found = maintain_table(lake, TABLE, clock.now_ms(), remove=False)
        assert "a maintenance run searches the table" in kept(found, Kind.CERTIFICATE)["request 1"]
        assert known(lake).certificates == ()

    def test_it_writes_a_page_and_the_document(self, lake: Lake, files: list[str]) -> None:
        erase(lake, b"a")
        page = Path(kept(expire(lake), Kind.CERTIFICATE)["request 1"].removeprefix("issued: "))
        assert page == lake.reports_folder / "erasures" / TABLE / "request-1.html"
        text = page.read_text()
        assert files[0] in text
        assert "Content-Security-Policy" in text
        document = page.with_suffix(".json").read_text()
        assert document == known(lake).certificates[0].document

    def test_c29_it_keeps_certificates(self, lake: Lake, files: list[str]) -> None:
        assert files
        erase(lake, b"a")
        expire(lake)
        expire(lake)
        assert len(known(lake).certificates) == 1

    def test_requests_that_are_lost_are_told(self, lake: Lake, files: list[str]) -> None:
        assert files
        for path in (on_disk(lake.table(TABLE).location()) / "metadata").rglob("*.puffin"):
            path.unlink()
        found = maintain_table(lake, TABLE, clock.now_ms(), remove=True)
        found = [one for one in found if one.kind is Kind.CERTIFICATE]
        assert [(one.exit_code, "is gone" in one.reason) for one in found] == [(1, True)]


class TestExpiredForIt:
    """`firn.erase.history` = expire: history goes at half the request's time, whatever its age."""

    @pytest.fixture
    def erased(self, lake: Lake, table: str) -> list[str]:
        lake.set_properties(TABLE, {"firn.erase.history": "expire"})
        path = append_file(lake, [row(0, b"a"), row(1, b"b")])
        assert table == TABLE
        request(lake, b"a", within_ms=2 * DAY_MS)
        erase(lake, b"a")
        return [path]

    def maintain(self, lake: Lake, after_ms: int) -> None:
        maintain_table(lake, TABLE, clock.now_ms() + after_ms, remove=True)

    def test_c30_not_before_half_of_its_time(self, lake: Lake, erased: list[str]) -> None:
        self.maintain(lake, DAY_MS - 60_000)
        assert on_disk(erased[0]).exists()

    def test_c30_then_the_files_go_and_the_certificate_is_issued_at_once(self, lake: Lake, erased: list[str]) -> None:
        self.maintain(lake, DAY_MS + 60_000)
        assert not on_disk(erased[0]).exists()
        (issued,) = known(lake).certificates
        assert content_of(issued)["in_time"]
        assert lakes.offsets(lake) == [1]

    def test_c30_younger_history_stays(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        after = lakes.snapshot(lake)
        append(lake, [row(5, b"z")])
        self.maintain(lake, DAY_MS + 60_000)
        assert lake.table(TABLE).snapshot_by_id(after or 0), "it is from after the erasure"

    def test_c30_so_does_history_with_bounds_that_another_tool_left(self, lake: Lake, table: str) -> None:
        assert table == TABLE
        lake.set_properties(TABLE, {"firn.erase.history": "expire"})
        append(lake, [row(0, b"a"), row(1, b"b")])
        append(lake, [row(2, b"c")])
        request(lake, b"a", within_ms=2 * DAY_MS)
        erase(lake, b"other")
        append(lake, [row(0, b"a")])
        # It rewrites files after the erasure, and keeps the bounds of the former ones.
        lake.table(TABLE).delete("offset == 0")
        self.maintain(lake, DAY_MS + 60_000)
        (issued,) = known(lake).certificates
        assert content_of(issued)["in_time"]

    @pytest.mark.parametrize("by_another_tool", [False, True])
    def test_a_dry_run_shows_what_goes(self, lake: Lake, erased: list[str], by_another_tool: bool) -> None:
        assert erased
        if by_another_tool:
            append(lake, [row(0, b"a"), row(7, b"y")])
            append(lake, [row(8, b"z")])
            lake.table(TABLE).delete("offset == 0")
        now_ms = clock.now_ms() + DAY_MS + 60_000
        shown = [one for one in maintain_table(lake, TABLE, now_ms, remove=False) if one.goes]
        assert {Kind.SNAPSHOTS, Kind.EXPIRED} <= {one.kind for one in shown}
        assert [one for one in maintain_table(lake, TABLE, now_ms, remove=True) if one.goes] == shown
        assert len(known(lake).certificates) == 1

    def test_c30_a_tag_stays_and_blocks(self, lake: Lake, erased: list[str]) -> None:
        table = lake.table(TABLE)
        head = table.current_snapshot()
        assert head is not None
        table.manage_snapshots().create_tag(head.parent_snapshot_id or 0, "audit").commit()
        self.maintain(lake, DAY_MS + 60_000)
        assert on_disk(erased[0]).exists()
        assert known(lake).certificates == ()

    def test_c30_certified_requests_expire_nothing_more(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        self.maintain(lake, DAY_MS + 60_000)
        before = len(lake.table(TABLE).metadata.snapshots)
        append(lake, [row(5, b"z")])
        self.maintain(lake, DAY_MS + 120_000)
        assert len(lake.table(TABLE).metadata.snapshots) == before + 1


def test_c30_maintenance_drops_bounds_that_another_tool_left(lake: Lake, table: str) -> None:
    append(lake, [row(0, b"a"), row(1, b"b")], table)
    append(lake, [row(2, b"c")])
    request(lake, b"a")
    # The whole file goes, and its entry stays in a manifest, with bounds.
    lake.table(TABLE).delete("offset < 2")
    erase(lake, b"a")
    told = kept(expire(lake), Kind.CERTIFICATE)
    assert told["request 1"].startswith("issued: ")
