"""C30 from request to certificate: afterwards no file of the table holds a byte of the key, by a reader of its own."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.decoder import new_decoder

from firnlake import clock
from firnlake.iceberg.manifests import HEADER, blocks
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.certificate import content_of
from firnlake.lanes.erasure.certify import verify
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import files_under, on_disk
from tests.support.erasing import erasures, request
from tests.support.topics import DAY, NOW, Topic, updates

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
    topic = spread
    others = [record for record in topic.seen() if record.key != KEY.encode()]
    assert {segment.level for segment in topic.segments()} == {0, 1, 3}
    assert topic.removed_tombstones(), "one of the key's"
    before = where(topic)
    assert {path.suffix for path in before} == {".parquet", ".avro"}
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, KEY.encode(), now=clock.now_ms(), within_ms=4 * DAY)
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    assert topic.seen() == others
    assert where(topic), "older snapshots keep it until half of the time has passed"
    maintain_table(topic.lake, topic.table, asked.deadline_ms - 2 * DAY + 1, remove=True)
    assert where(topic) == []
    assert topic.seen() == others
    (issued,) = erasures(topic).certificates
    told = content_of(issued)
    assert told["in_time"]
    assert {one["path"] for one in told["destroyed_files"]} <= {f"file://{path}" for path in before}
    found = verify(topic.lake, topic.table, [KEY.encode()], topic.engine)
    assert (found.holds, found.landed_again) == (True, False)


def test_c30_what_lands_late_goes_and_what_lands_new_stays(spread: Topic) -> None:
    topic = spread
    topic.lake.set_properties(topic.table, {"firn.erase.history": "expire"})
    asked = request(topic, KEY.encode(), now=clock.now_ms(), within_ms=4 * DAY)
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    topic.append(updates(f"{KEY}=1", start=0))
    topic.land(updates(f"{KEY}=6", start=12))
    topic.clean(Lane.ERASE, clock.now_ms(), force=True)
    maintain_table(topic.lake, topic.table, asked.deadline_ms - 2 * DAY + 1, remove=True)
    (issued,) = erasures(topic).certificates
    assert [record.offset for record in topic.seen() if record.key == KEY.encode()] == [12]
    assert content_of(issued)["landed_again"] == content_of(issued)["digests"]
    found = verify(topic.lake, topic.table, [KEY.encode()], topic.engine)
    assert (found.holds, found.landed_again, found.landed_before) == (True, True, True)
