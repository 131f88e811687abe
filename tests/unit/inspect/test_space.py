"""Bytes in the status of a table: live, held by history, to be freed; as text, page and metrics."""

import html
import re
from pathlib import Path
from typing import Any

import pytest

from firnlake.airflow.metrics import metrics
from firnlake.airflow.site.page import overview_html, table_html
from firnlake.cli.overview import show_bytes
from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.branches import MENDED, QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.document import TopicSpace
from firnlake.inspect.status.gather import status_of
from firnlake.inspect.status.rows import Query, Status, read
from firnlake.job.stage import Stage
from firnlake.maintain.mend import mend, named_files
from firnlake.table import segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, TABLE, Fates, append, judged, only_plan, ready, row
from tests.support.overviews import SPACE, TAKEN, topic_of, write_overview
from tests.support.publishing import publish

GB = 10**9


def seen(page: str) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


def status(lake: Lake, now: int | None = None) -> Status:
    return status_of(lake, TABLE, NOW if now is None else now)


def sizes(lake: Lake, branch: str = "main") -> int:
    """Bytes of the data files on a branch."""
    table = lake.table(TABLE)
    scan = table.scan() if branch == "main" else table.scan().use_ref(branch)
    return sum(task.file.file_size_in_bytes for task in scan.plan_files())


def newest(lake: Lake) -> int:
    return max(snapshot.timestamp_ms for snapshot in lake.table(TABLE).metadata.snapshots)


def clean(lake: Lake) -> int:
    """Land two records of one key and one without, and clean them; returns the bytes that landed."""
    append(lake, [row(0, value=b"older" * 100)])
    append(lake, [row(1), row(2, key=None)])
    landed = sizes(lake)
    kept = [row(1, level=3), row(2, key=None, level=QUARANTINED)]
    publish(lake, ready(lake, only_plan(lake), kept, Fates(superseded=1, quarantined=1)).identifier)
    return landed


@pytest.mark.usefixtures("table")
class TestFigures:
    """By what keeps the bytes."""

    def test_a_table_that_nothing_was_removed_from_has_no_history(self, lake: Lake) -> None:
        append(lake, [row(0), row(0, topic="carts")])
        found = status(lake)
        space, topics = found.summary.space, found.details().topics
        assert (space.main_bytes, space.side_bytes, space.history_bytes, space.expirable_bytes) == (
            sizes(lake),
            0,
            0,
            0,
        )
        assert space.history_is_exact
        assert [topic.topic for topic in topics] == ["carts", "orders"]
        assert sum(topic.main_bytes for topic in topics) == space.main_bytes
        assert space.compactable_bytes is None, "no cleaning of the table to estimate by"

    def test_what_was_mended_is_on_a_side_branch_and_counts_once_after_a_rollback(self, lake: Lake) -> None:
        append(lake, [row(0), row(1)])
        append(lake, [row(2, topic="carts")])
        before = lake.table(TABLE).metadata.current_snapshot_id
        (carts,) = segments.read(lake.table(TABLE), TABLE).by_partition[TopicPartition("carts", 0)]
        mend(lake, named_files(lake, TABLE, [carts.path]))
        found = status(lake)
        assert found.summary.space.side_bytes == sizes(lake, MENDED) == carts.bytes
        assert {one.topic: one.side_bytes for one in found.details().topics} == {"carts": carts.bytes, "orders": 0}
        lake.table(TABLE).manage_snapshots().set_current_snapshot(before).commit()
        space = status(lake).summary.space
        assert (space.main_bytes, space.side_bytes) == (sizes(lake), 0)

    def test_what_a_cleaning_replaced_is_held_by_history(self, lake: Lake) -> None:
        landed = clean(lake)
        found = status(lake, newest(lake))
        space, (orders,) = found.summary.space, found.details().topics
        assert (space.main_bytes, space.side_bytes) == (sizes(lake), sizes(lake, "firn_quarantine"))
        assert (space.history_bytes, space.expirable_bytes) == (landed, 0)
        assert orders == TopicSpace(
            topic="orders", **space.model_dump(include=set(TopicSpace.model_fields) - {"topic"})
        )

    def test_c29_what_is_expirable_follows_the_table_s_limits(self, lake: Lake) -> None:
        landed = clean(lake)
        after = newest(lake) + 5 * 86_400_000 + 1
        assert status(lake, after).summary.space.expirable_bytes == landed
        lake.set_properties(TABLE, {"history.expire.min-snapshots-to-keep": "100"})
        assert status(lake, after).summary.space.expirable_bytes == 0

    def test_c26_a_wrong_limit_is_named_and_nothing_is_expirable(self, lake: Lake) -> None:
        clean(lake)
        lake.set_properties(TABLE, {"history.expire.max-snapshot-age-ms": "a week"})
        found = status(lake, newest(lake) + 10**12)
        assert found.summary.space.expirable_bytes == 0
        assert "history.expire.max-snapshot-age-ms" in found.details().doubts[0]

    def test_garbage_is_estimated_by_what_cleanings_removed(self, lake: Lake) -> None:
        landed = clean(lake)
        assert status(lake).summary.space.compactable_bytes == 0, "nothing is cleanable"
        append(lake, [row(3, value=b"newer" * 300)])
        found = status(lake)
        (part,) = found.partitions
        summary = found.summary
        share = summary.saved_bytes / landed
        assert 0 < share < 1
        (landed,) = (level.bytes for level in part.levels if level.level == 0)
        assert summary.space.compactable_bytes == round(share * landed)

    def test_what_retention_would_drop_is_counted_whole(self, lake: Lake) -> None:
        append(lake, [row(0)])
        old = sizes(lake)
        append(lake, [row(1)])
        lake.set_properties(TABLE, {"firn.cleanup.policy": "delete", "firn.retention.ms": "1"})
        assert status(lake).summary.space.compactable_bytes == old


@pytest.mark.usefixtures("table")
def test_core_time_is_that_of_the_published_compactions(lake: Lake) -> None:
    append(lake, [row(0), row(1)])
    engine = LocalEngine(3)
    (done,) = compact(lake, [only_plan(lake)], engine)
    stage = judged(lake, Stage.load(lake, done.stage))
    assert stage.result is not None
    core_ms = stage.result.core_ms
    assert core_ms > 0
    assert core_ms % 3 == 0, "three tasks could run at once"
    publish(lake, stage.identifier)
    assert status(lake).summary.core_ms == core_ms


class TestShown:
    """The same figures in the terminal, on the pages, and as metrics."""

    @pytest.fixture
    def found(self, tmp_path: Path) -> Status:
        return self.written(tmp_path)

    def written(self, home: Path, **facts: Any) -> Status:
        write_overview(home, **facts)
        found = read(home, "shop.orders")
        assert found is not None
        return found

    def test_in_the_terminal(self, found: Status, capsys: pytest.CaptureFixture[str]) -> None:
        show_bytes(found)
        text = " ".join(capsys.readouterr().out.split())
        assert "orders 20.5 GB 21.0 MB 3.1 GB" in text
        assert "history alone holds 38,000,000,000 bytes; expiring" in text
        assert "expiring snapshots now would free 29,500,000,000 bytes" in text
        assert "91,000,000,000 bytes landed; compaction wrote 139,000,000,000 and saved 62,000,000,000" in text
        assert "write amplification 1.53" in text

    def test_what_is_not_exact_is_said(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        vague = SPACE.model_copy(update={"history_is_exact": False, "expirable_is_exact": False})
        found = self.written(tmp_path, space=vague)
        show_bytes(found)
        text = " ".join(capsys.readouterr().out.split())
        assert "history alone holds at least 38,000,000,000 bytes; expiring" in text
        assert "expiring snapshots now would free about 29,500,000,000 bytes" in text
        page = seen(table_html(found, Query(), TAKEN))
        assert "Held by history only ≥ 38.0 GB ≈ 29.5 GB expirable now" in page
        assert "≥ 38.0 GB in history" in seen(overview_html([found.summary], {}, TAKEN))

    def test_the_page_lists_the_largest_topics(self, tmp_path: Path) -> None:
        topics = tuple(topic_of(f"topic-{number:03}", main_bytes=number * GB) for number in range(120))
        page = seen(table_html(self.written(tmp_path, topics=topics), Query(), TAKEN))
        assert "the 50 largest of 120" in page
        assert "topic-119" in page
        assert "topic-069" not in page

    def test_an_estimate_without_a_cleaning_is_a_dash(self, tmp_path: Path) -> None:
        unknown = SPACE.model_copy(update={"compactable_bytes": None})
        found = self.written(tmp_path, space=unknown)
        assert "Compactable (estimate) –" in seen(table_html(found, Query(), TAKEN))
        assert "compactable-bytes" not in metrics(found.summary)

    def test_metrics(self, tmp_path: Path) -> None:
        found = self.written(tmp_path)
        sent = metrics(found.summary)
        assert (sent["main-bytes"], sent["side-bytes"]) == (found.summary.bytes, 21_000_000)
        assert (sent["history-bytes"], sent["expirable-bytes"], sent["compactable-bytes"]) == (
            38 * GB,
            29.5 * GB,
            3.1 * GB,
        )
