"""Records without a key: quarantined, exported, corrected, landed again with their offsets, cleaned (C2, C3, C5)."""

import json
from pathlib import Path

from firnlake.ingest import quarantine
from firnlake.ingest.land import land
from tests.support.topics import NOW, Record, Topic, updates


def lost(topic: Topic) -> Topic:
    """Offsets 0 and 2 without a key, a=2 at 1 and b=2 at 3; then cleaned."""
    topic.land(
        [Record(0, None, b"for a")], updates("a=2", start=1), [Record(2, None, b"for c")], updates("b=2", start=3)
    )
    topic.clean("full")
    return topic


def test_c3_c5_corrected_records_land_below_cleaned_through(topic: Topic, tmp_path: Path) -> None:
    """Records with a newer one of their key stay superseded, the others become visible, and the counts say so."""
    lost(topic)
    assert topic.offsets() == [1, 3]
    path = tmp_path / "lost.jsonl"
    assert quarantine.export(topic.lake, topic.table, path) == 2
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    corrected = [line | {"key": line["value"].removeprefix("for ")} for line in lines]
    path.write_text("".join(json.dumps(line) + "\n" for line in corrected))
    land(topic.lake, topic.table, [path])
    (counts,) = topic.clean("full", NOW + 1, force=True)
    assert [(one.offset, one.key, one.value) for one in topic.seen()] == [
        (1, b"a", b"2"), (2, b"c", b"for c"), (3, b"b", b"2"),
    ]  # fmt: skip
    assert (counts.records_in, counts.records_out, counts.superseded, counts.quarantined) == (4, 3, 1, 0)


def test_c5_a_redelivery_is_quarantined_again_listed_and_exported_once(topic: Topic, tmp_path: Path) -> None:
    lost(topic).append([Record(2, None, b"for c")])
    (counts,) = topic.clean("full", NOW + 1, force=True)
    assert (counts.records_in, counts.records_out, counts.quarantined) == (3, 2, 1)
    assert topic.offsets() == [1, 3]
    assert [one.offset for one in quarantine.records(topic.lake, topic.table, 10)] == [0, 2]
    assert quarantine.export(topic.lake, topic.table, tmp_path / "lost.parquet") == 2
