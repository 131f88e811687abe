"""Topics and keys that mean something to SQL, paths, HTML or a terminal are names in every lane."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.airflow.site.page import table_html
from firnlake.ingest.land import land
from firnlake.inspect.status.gather import status_of, write_snapshot
from firnlake.inspect.status.rows import Query, read
from firnlake.job.lane import Lane
from firnlake.publish.publish_jobs import retain_plans
from firnlake.table.topic_partition import TopicPartition
from firnlake.validate.validate import build_reports
from tests.support.fuzz import HOSTILE_NAMES
from tests.support.pages import Page
from tests.support.topics import DAY, NOW, Record, Topic

pytestmark = pytest.mark.nightly

KEYS = (*(name.encode() for name in HOSTILE_NAMES[::4]), b"\xff\xfe", b"k" * 10_000)
OURS = {"footer", "section", "h3"}
"""Elements of the reports beside those of the table's page."""

Seen = dict[str, dict[int, tuple[bytes | None, bytes | None]]]


def landed(topic: Topic, folder: Path, number: int) -> list[Record]:
    """Land the same records into every topic, in one commit: all keys, one of them deleted, and one without a key."""
    start = number * (len(KEYS) + 2)
    batch = [Record(start + place, key, b"%d of %b" % (number, key)) for place, key in enumerate(KEYS)]
    batch.append(Record(start + len(KEYS), KEYS[number], None))
    batch.append(Record(start + len(KEYS) + 1, None, b"lost"))
    path = folder / f"{number}.parquet"
    pq.write_table(pa.concat_tables(replace(topic, name=name).arrow(batch) for name in HOSTILE_NAMES), path)
    land(topic.lake, topic.table, [path])
    return batch


def model(batches: list[list[Record]]) -> dict[int, tuple[bytes | None, bytes | None]]:
    """The rest of each topic: the newest record of every key, and the log end."""
    records = [record for batch in batches for record in batch]
    newest = {record.key: record for record in records if record.key is not None}
    return {one.offset: (one.key, one.value) for one in (*newest.values(), records[-1])}


def seen(topic: Topic) -> Seen:
    found: Seen = {}
    for row in topic.rows():
        found.setdefault(row["topic"], {})[row["offset"]] = (row["key"], row["value"])
    return found


def test_c1_c2_c5_names_are_names_in_every_lane(topic: Topic, tmp_path: Path) -> None:
    topic.create(report_samples="full", cleanup_policy="compact,delete", retention_ms=str(30 * DAY))
    batches = [landed(topic, tmp_path, number) for number in range(4)]
    lanes = {Lane.MERGE: 2, Lane.CLEAN: 1, Lane.FULL: 1}
    for lane, times in lanes.items():
        for _ in range(times):
            topic.clean(lane, force=lane is Lane.FULL)
    batches.append(landed(topic, tmp_path, 4))
    topic.clean(Lane.FULL, force=True)
    assert seen(topic) == {name: model(batches) for name in HOSTILE_NAMES}
    quarantined = topic.quarantined()
    assert {row["topic"] for row in quarantined} == set(HOSTILE_NAMES)
    assert {row["value"] for row in quarantined} == {b"lost"}
    status = status_of(topic.lake, topic.table, NOW)
    assert {part.topic_partition for part in status.partitions} == {TopicPartition(name, 0) for name in HOSTILE_NAMES}
    pages_show_text(topic)
    last = landed(topic, tmp_path, 5)
    # C4, C19: all is too old by now, but a log keeps its end, and with it the newest segment.
    later = topic.plans(Lane.RETAIN, NOW + 40 * DAY)
    assert len(retain_plans(topic.lake, later).publications) == len(HOSTILE_NAMES)
    assert seen(topic) == {name: {one.offset: (one.key, one.value) for one in last} for name in HOSTILE_NAMES}


def pages_show_text(topic: Topic) -> None:
    """Every page about the table has our elements only, and links that stay among the pages."""
    reports = build_reports(topic.lake).parent
    write_snapshot(topic.lake, topic.table, NOW)
    found = read(topic.lake.home, topic.table)
    assert found
    page = Page(table_html(found, Query(), NOW))
    pages = [path for path in (reports / "plans").glob("*.html") if topic.table in path.read_text(encoding="utf-8")]
    assert len(pages) >= len(HOSTILE_NAMES)
    known = Page(pages[0].read_text(encoding="utf-8")).tags
    assert not {"script", "img", "iframe", "object", "embed", "link", "b"} & (known | page.tags)
    for path in pages:
        assert path.resolve().parent == (reports / "plans").resolve()
        one = Page(path.read_text(encoding="utf-8"))
        assert one.tags <= known | OURS
        assert all(link.startswith("../") for link in one.links)


@pytest.mark.parametrize("name", ["o`r", "drop table", "a-b"])
def test_a_table_may_be_called_what_sql_would_quote(topic: Topic, name: str) -> None:
    topic.table = f"db.{name} {topic.table.rpartition('.')[2]}"
    topic.land([Record(0, b"a", b"1")], [Record(1, b"a", b"2")]).run(force=True)
    assert topic.offsets() == [1]
