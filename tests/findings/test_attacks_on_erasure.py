"""C30: what an attacker found: keys that came back, requests that were forgotten, and certificates that were false."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.types import BinaryType

from firnlake import clock
from firnlake.engine.engine import Engine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.release import release
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.certify import certify, kept_versions
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add
from tests.support.adopted import BY_ID, CDC_SCHEMA, append, change, make
from tests.support.erasing import certificates, certified, erased, erasures, request
from tests.support.topics import DAY, NOW, Topic, updates


def test_c30_a_key_that_comes_back_in_a_file_of_another_table_of_firn_is_erased(topic: Topic) -> None:
    copy = Topic(topic.lake, topic.engine, f"{topic.table}_copy").create()
    copy.land(updates("a=1"), updates("e=1", start=1)).clean("merge", force=True)
    topic.land(updates("b=1", "c=1", start=5))
    erased(topic, b"a")
    assert len(certificates(topic)) == 1
    (task,) = copy.lake.table(copy.table).scan().plan_files()
    add(topic.lake, topic.table, [], [task.file])
    assert [record.key for record in topic.seen()] == [b"a", b"e", b"b", b"c"]
    assert topic.plans("erase", clock.now_ms(), force=True) != []


def test_c30_a_late_record_that_was_the_log_end_goes_once_a_newer_one_has_landed(topic: Topic) -> None:
    topic.create().land(updates("b=1", "c=1"))
    back = topic.lake.table(topic.table).metadata.current_snapshot_id or 0
    topic.land(updates("d=1", start=9))
    table = topic.lake.table(topic.table)
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "audit").commit()
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(back).commit()
    asked = erased(topic, b"a")
    assert (asked.log_ends, len(certificates(topic))) == ({0: 10}, 1)
    topic.append(updates("a=1", "a=2", start=5))
    topic.clean("erase", clock.now_ms(), force=True)
    assert topic.offsets() == [0, 1, 6]
    topic.land(updates("e=1", start=7))
    topic.run(clock.now_ms(), force=True, until_idle=True)
    assert topic.offsets() == [0, 1, 7]


def before_the_first_commit(topic: Topic, monkeypatch: pytest.MonkeyPatch, others: Callable[[], Any]) -> None:
    """Let ``others`` work, and land records, right before the catalog gets the commit of the request."""
    catalog = topic.lake.catalog
    commit = catalog.commit_table

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", commit)
        others()
        topic.append(updates("a=1", "d=1", start=2))
        return commit(*arguments)

    monkeypatch.setattr(catalog, "commit_table", late)


def test_c30_a_process_that_read_the_first_try_knows_the_second(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.land(updates("b=1", "c=1"))
    before_the_first_commit(topic, monkeypatch, lambda: erasures(topic))
    assert request(topic, b"a").log_ends == {0: 4}
    topic.land(updates("e=1", start=4))
    topic.clean("erase", force=True)
    assert b"a" not in [record.key for record in topic.seen()]


def test_c30_a_search_between_two_tries_does_not_stop_the_table(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.land(updates("b=1", "c=1"))
    before_the_first_commit(topic, monkeypatch, lambda: certified(topic))
    assert request(topic, b"a").log_ends == {0: 4}
    assert [erasure.request.log_ends for erasure in erasures(topic)] == [{0: 4}]


def test_c30_requests_outlive_another_metadata_folder(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    asked = request(topic, b"a")
    location = topic.lake.table(topic.table).location()
    topic.lake.set_properties(topic.table, {"write.metadata.path": f"{location}/elsewhere"})
    assert [erasure.request.id for erasure in erasures(topic)] == [asked.id]
    topic.clean("erase", force=True)
    assert topic.offsets() == [1]


def test_c30_a_tag_that_shows_the_key_in_a_dropped_key_column_prevents_the_certificate(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    table = topic.lake.table(topic.table)
    audit = table.metadata.current_snapshot_id or 0
    table.manage_snapshots().create_tag(audit, "audit").commit()
    with topic.lake.table(topic.table).update_schema() as update:
        update.delete_column("key")
    with topic.lake.table(topic.table).update_schema() as update:
        update.add_column("key", BinaryType())
    request(topic, b"a")
    done = certified(topic)
    assert b"a" in topic.lake.table(topic.table).scan(snapshot_id=audit).to_arrow()["key"].to_pylist()
    assert done.issued == ()


TABLE = "shop.readopted"


def test_c30_another_key_column_is_no_reason_for_a_certificate(lake: Lake, engine: Engine) -> None:
    make(lake, TABLE, CDC_SCHEMA)
    append(lake, TABLE, change(10, 4711, region="emea"), change(11, 2, region="apac"))
    adopt(lake, TABLE, BY_ID)
    ask(lake, TABLE, [(b"4711",)], NOW)
    try:
        release(lake, TABLE, drop_columns=True)
        adopt(lake, TABLE, Choice(("region",), "lsn", tombstone="op = 'd'"))
        issued = certify(lake, TABLE, clock.now_ms(), engine).issued
    except RefusedError:
        issued = ()
    assert 4711 in lake.table(TABLE).scan().to_arrow()["id"].to_pylist()
    assert issued == ()


def test_c30_an_export_with_other_column_names_prevents_the_certificate(topic: Topic) -> None:
    topic.land(updates("b=1", "c=1"))
    folder = on_disk(topic.lake.table(topic.table).location()) / "data"
    pq.write_table(pa.table({"customer": ["a"], "text": ["1"]}), folder / "export.parquet")
    request(topic, b"a")
    assert certified(topic).issued == ()


KEY = "customer-4711"


def test_c30_a_manifest_with_the_bounds_of_a_late_file_prevents_the_certificate(topic: Topic) -> None:
    topic.land(updates("b=1", "c=1", start=5))
    request(topic, KEY.encode())
    topic.append(updates(f"{KEY}=1", start=1))
    topic.lake.table(topic.table).delete("offset = 1")
    table = topic.lake.table(topic.table)
    kept = {ref.snapshot_id for ref in table.refs().values()}
    old = [one.snapshot_id for one in table.snapshots() if one.snapshot_id not in kept]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    table = topic.lake.table(topic.table)
    manifests = [one for snapshot in table.snapshots() for one in snapshot.manifests(table.io)]
    named = {on_disk(one.manifest_path) for one in manifests}
    for path in files_under(on_disk(table.location())):
        is_key = path.suffix == ".parquet" and KEY.encode() in pq.read_table(path, partitioning=None)["key"].to_pylist()
        if is_key or (path.name.endswith("-m0.avro") and path not in named):
            path.unlink()
    entries = [one for manifest in manifests for one in manifest.fetch_manifest_entry(table.io, discard_deleted=False)]
    gone = [one.data_file.lower_bounds for one in entries if one.status == ManifestEntryStatus.DELETED]
    assert any((bounds or {}).get(1) == KEY.encode() for bounds in gone)
    assert certified(topic).issued == ()


def test_c30_a_record_of_a_snapshot_that_was_rolled_back_counts_for_a_new_request(topic: Topic) -> None:
    topic.land(updates("b=1", "c=1"))
    request(topic, b"a")
    back = topic.lake.table(topic.table).metadata.current_snapshot_id or 0
    topic.land(updates("a=1", "d=1", start=2))
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(back).commit()
    request(topic, b"a", now=NOW + 1)
    assert len(certified(topic).issued) < 2


def test_c30_an_object_store_with_the_data_needs_a_word_about_older_versions(topic: Topic) -> None:
    table = topic.create().lake.table(topic.table)
    update = {"properties": {**table.properties, "write.data.path": "s3://bucket/orders"}}
    remote = Table(table.name(), table.metadata.model_copy(update=update), "", table.io, table.catalog)
    assert not isinstance(kept_versions(remote, topic.table), str)


def test_c30_a_damaged_file_of_another_topic_is_in_nobodys_way(topic: Topic) -> None:
    topic.land(updates("b=1", "c=1"))
    users = Topic(topic.lake, topic.engine, topic.table, "users", made=True).land(updates("x=1", "y=1"))
    request(topic, b"a")
    request(users, b"a")
    (segment,) = users.segments()
    path = on_disk(segment.path)
    path.write_bytes(path.read_bytes()[:-100])
    assert [document["topic"] for document in certified(topic).issued] == ["orders"]


def test_c30_a_stray_file_among_the_requests_prevents_the_certificate(topic: Topic) -> None:
    topic.land(updates("b=1", "c=1"))
    request(topic, b"a")
    (folder,) = on_disk(topic.lake.table(topic.table).location()).rglob("erasures")
    pq.write_table(topic.arrow(updates("a=1")), folder / "copy.parquet")
    assert certified(topic).issued == ()


def test_c30_requests_of_a_dropped_table_are_in_nobodys_way(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    erased(topic, b"a")
    location = topic.lake.table(topic.table).location()
    topic.lake.catalog.drop_table(topic.table)
    topic.create().land(updates("a=1", "b=1"))
    assert topic.lake.table(topic.table).location() == location
    erased(topic, b"a")
    maintain_table(topic.lake, topic.table, clock.now_ms() + 9 * DAY, remove=True)
    assert len(certificates(topic)) == 1, "\n".join(str(p) for ps in certified(topic).blocked.values() for p in ps)


@pytest.mark.parametrize("name", ["copy#1.parquet", "copy?1.parquet", "a#b/copy.parquet"])
def test_c30_a_copy_of_any_name_prevents_the_certificate(topic: Topic, name: str) -> None:
    topic.land(updates("b=1", "c=1"))
    path = on_disk(topic.lake.table(topic.table).location()) / "data" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(topic.arrow(updates("a=1")), path)
    request(topic, b"a")
    assert certified(topic).issued == ()


def test_c26_a_renamed_key_column_is_named(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    request(topic, b"a")
    with topic.lake.table(topic.table).update_schema() as update:
        update.rename_column("key", "k")
    done = certified(topic)
    assert (done.issued, "the table has another key" in str(done.blocked)) == ((), True)


def test_c30_after_a_rollback_to_before_the_request_the_key_still_goes(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    back = topic.lake.table(topic.table).metadata.current_snapshot_id or 0
    request(topic, b"a")
    topic.lake.table(topic.table).manage_snapshots().set_current_snapshot(back).commit()
    topic.run(force=True, until_idle=True)
    assert topic.offsets() == [1]
