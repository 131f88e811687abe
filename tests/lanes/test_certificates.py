"""C30: from a request to its certificate, what is refused at once, and what a person is told on the way."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.table import Table

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.manifests import HEADER, blocks
from firnlake.inspect.erasures import status
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.certify import kept_versions
from firnlake.lanes.erasure.requests import open_requests
from firnlake.lanes.erasure.search import search
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from infra.foreign.files import files_under, on_disk
from tests.support.erasing import certificates, certified, erased, erasures, request
from tests.support.topics import DAY, NOW, Topic, updates

DECLARED = "firn.erase.object.versions"
KEY = "customer-4711-of-whom-nothing-may-stay"


def holds(path: Path) -> bool:
    """True when the file holds the key, or as much of it as bounds keep."""
    start = KEY[:16].encode()
    if path.suffix == ".parquet":
        # Values would be compressed: as rows they are not.
        return start in repr(pq.read_table(path, partitioning=None).to_pylist()).encode()
    content = path.read_bytes()
    if path.suffix == ".avro":
        decoder = new_decoder(content)
        header = HEADER.read(decoder)
        found = blocks(content, decoder.tell(), header.sync, header.compression_codec())
        return any(start in block for block, _ in found)
    return start in content


def where(topic: Topic) -> list[Path]:
    """The files below the table's location that hold the key."""
    return sorted(path for path in files_under(on_disk(topic.lake.table(topic.table).location())) if holds(path))


@pytest.fixture
def spread(topic: Topic) -> Topic:
    """A topic with the key on every level, among removed tombstones, in older snapshots and in manifests."""
    topic.land(updates(f"{KEY}=1", "b=1", f"{KEY}=", "c=1")).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    topic.land(updates(f"{KEY}=2", "d=1", start=4), updates("b=2", start=6)).clean("full", NOW + DAY, force=True)
    topic.land(updates(f"{KEY}=3", "e=1", start=7), updates(f"{KEY}=4", start=9)).clean("merge", NOW + DAY)
    topic.land(updates(f"{KEY}=5", "f=1", start=10))
    return topic


def test_c30_from_request_to_certificate(spread: Topic) -> None:
    """Afterwards no file of the table holds a byte of the key, by a reader that is not the product's."""
    topic = spread
    others = [record for record in topic.seen() if record.key != KEY.encode()]
    assert {segment.level for segment in topic.segments()} == {0, 1, 3}
    assert topic.removed_tombstones(), "one of the key's"
    assert {path.suffix for path in where(topic)} == {".parquet", ".avro"}
    asked = erased(topic, KEY.encode(), b"never there")
    assert where(topic) == []
    assert topic.seen() == others
    (issued,) = certificates(topic)
    assert (issued["request"], issued["in_time"], issued["keys"]) == (asked.id, True, 2)
    assert (issued["found_nowhere"], issued["newer"]) == ([1], [])
    assert {row["named_by"] for row in issued["read"]} == {"branch main"}, "the removed tombstone was the key's"
    assert KEY not in json.dumps(issued)
    assert all(digest not in json.dumps(issued) for digest in asked.digests)
    assert {"logs of Airflow, Spark and other engines"} < set(issued["not_covered"])
    assert certified(topic, asked.id).issued == (issued,)


def test_c30_what_lands_late_goes_and_what_lands_new_stays(spread: Topic) -> None:
    topic = spread
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, KEY.encode(), now=clock.now_ms(), within_ms=4 * DAY)
    topic.append(updates(f"{KEY}=1", start=0))
    topic.land(updates(f"{KEY}=6", start=12))
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    maintain_table(topic.lake, topic.table, clock.now_ms() + 2 * DAY + 1, remove=True)
    (issued,) = certificates(topic)
    assert [record.offset for record in topic.seen() if record.key == KEY.encode()] == [12]
    assert issued["newer"] == [0]
    assert certified(topic, asked.id).issued == (issued,)
    topic.append(updates(f"{KEY}=1", start=0))
    assert certified(topic, asked.id).issued == ()
    topic.clean(Lane.ERASE, clock.now_ms())
    assert [record.offset for record in topic.seen() if record.key == KEY.encode()] == [12]


def test_c30_a_certificate_is_never_written_again(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    erased(topic, b"a")
    (path,) = on_disk(topic.lake.table(topic.table).location()).rglob("*.certificate.json")
    content = path.read_bytes()
    certified(topic)
    maintain_table(topic.lake, topic.table, clock.now_ms() + 9 * DAY, remove=True)
    assert path.read_bytes() == content
    copy = topic.lake.reports_folder / "erasures" / topic.table / f"request-{erasures(topic)[0].request.id}.json"
    assert json.loads(copy.read_bytes()) == json.loads(content)


def test_c30_a_changed_certificate_does_not_hold(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    asked = erased(topic, b"a")
    (path,) = on_disk(topic.lake.table(topic.table).location()).rglob("*.certificate.json")
    path.write_bytes(path.read_bytes().replace(b'"in_time": true', b'"in_time": false'))
    assert "it has been changed since it was issued" in str(certified(topic, asked.id).blocked)


def test_c30_a_search_opens_a_file_once_for_a_request(topic: Topic) -> None:
    topic.land(*(updates(f"k{number}=1", start=number) for number in range(9)))
    request(topic, b"a")

    def opened() -> int:
        table = topic.lake.table(topic.table)
        return search(table, topic.table, open_requests(table), topic.engine).opened

    assert (opened(), opened()) == (9, 0)
    topic.land(updates("b=1", start=9))
    assert (opened(), opened()) == (1, 0)


def test_c30_older_snapshots_keep_their_age_unless_history_expires(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    now = clock.now_ms()
    request(topic, b"a", now=now)
    topic.clean(Lane.ERASE, now, force=True)
    maintain_table(topic.lake, topic.table, now + 4 * DAY, remove=True)
    assert certificates(topic) == []
    assert "they are from before the request; the last of them expires at" in told(topic, now)
    maintain_table(topic.lake, topic.table, now + 6 * DAY, remove=True)
    assert len(certificates(topic)) == 1


def told(topic: Topic, now: int) -> str:
    return "; ".join(reason for one in status(topic.lake, topic.table, now) for reason in one.reasons)


def test_c30_maintenance_without_expiry_leaves_the_history_and_says_so(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    request(topic, b"a", now=clock.now_ms())
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    parts = {MaintenancePart.CERTIFICATES}
    (finding,) = maintain_table(topic.lake, topic.table, clock.now_ms() + 9 * DAY, remove=True, parts=parts)
    assert "older snapshots: they are from before the request" in finding.reason
    ((problem,),) = certified(topic).blocked.values()
    assert (problem.where, problem.why) == ("older snapshots", "it holds 1 record of keys to erase")


REFUSED = {
    "a key of two parts": ({}, [b"a", b"b"], None, None, "the key has 2 parts; allowed: 1"),
    "an unknown topic": ({}, [b"a"], "users", None, "holds no record of topic 'users'; allowed: one of orders"),
    "no time": ({}, [b"a"], None, 0, "0 ms is not a valid time for an erasure; allowed: 1 to 3155760000000"),
    "older snapshots stay longer": ({}, [b"a"], None, 4 * DAY, "because snapshots that hold them stay for 5d"),
    "files are never deleted": ({"gc.enabled": "false"}, [b"a"], None, None, "property gc.enabled is false"),
}


@pytest.mark.parametrize(("properties", "key", "name", "within_ms", "message"), REFUSED.values(), ids=REFUSED)
def test_c26_what_cannot_be_kept_is_refused_at_once(
    topic: Topic, properties: dict[str, str], key: list[bytes], name: str | None, within_ms: int | None, message: str
) -> None:
    topic.land(updates("a=1", "b=1"))
    topic.lake.set_properties(topic.table, properties)
    with pytest.raises(RefusedError, match=message):
        ask(topic.lake, topic.table, [key], NOW, name, within_ms)
    assert erasures(topic) == ()


def test_c30_a_log_end_is_that_of_any_branch_or_tag(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    table = topic.lake.table(topic.table)
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "audit").commit()
    topic.lake.table(topic.table).delete("offset = 1")
    assert request(topic, b"a").log_ends == {0: 2}


def test_c30_an_object_store_needs_a_word_about_older_versions(topic: Topic) -> None:
    table = topic.create().lake.table(topic.table)
    assert kept_versions(table, topic.table) == "none: a file system keeps no older versions of deleted files"
    answers = {"unknown": f"{DECLARED} = none", "none": "as the operator declares"}
    for value, answer in answers.items():
        update = {"location": "s3://bucket/orders", "properties": {**table.properties, DECLARED: value}}
        remote = Table(table.name(), table.metadata.model_copy(update=update), "", table.io, table.catalog)
        assert answer in str(kept_versions(remote, topic.table))
