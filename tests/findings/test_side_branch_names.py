"""The names of Firn's side branches, given by somebody else to a tag or to a branch of theirs."""

from collections.abc import Callable

import pytest
from pyiceberg.table.refs import SnapshotRefType

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES
from firnlake.ingest import quarantine
from tests.support.publishing import publish
from tests.support.topics import Record, Topic, updates

NO_KEY = Record(2, None, b"no key")


def name_something(topic: Topic, kind: str, name: str) -> None:
    """Give ``name`` to what main holds now."""
    table = topic.lake.table(topic.table)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manage = table.manage_snapshots()
    (manage.create_tag if kind == "tag" else manage.create_branch)(snapshot.snapshot_id, name).commit()


@pytest.mark.parametrize("kind", ["tag", "branch"])
@pytest.mark.parametrize(
    ("name", "reads"),
    [
        (QUARANTINE, lambda topic: quarantine.batches(topic.lake, topic.table)),
        (REMOVED_TOMBSTONES, lambda topic: topic.plans("full", force=True)),
    ],
)
def test_r22_what_is_not_firns_is_refused_by_name(
    topic: Topic, kind: str, name: str, reads: Callable[[Topic], object]
) -> None:
    topic.land(updates("a=1", "b=1"))
    name_something(topic, kind, name)
    with pytest.raises(RefusedError, match=f"table {topic.table}: {kind} {name} is not Firn's"):
        reads(topic)


def test_r22_a_tag_stays_a_tag(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), [NO_KEY, *updates("c=1", start=3)])
    (stage,) = topic.validated(topic.plans("full", force=True))
    name_something(topic, "tag", QUARANTINE)
    before = topic.lake.table(topic.table).metadata.refs
    with pytest.raises(RefusedError, match=f"tag {QUARANTINE} is not Firn's"):
        publish(topic.lake, stage)
    assert topic.lake.table(topic.table).metadata.refs == before
    assert before[QUARANTINE].snapshot_ref_type is SnapshotRefType.TAG


def test_r22_nor_is_a_branch_that_somebody_has_written_to(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    name_something(topic, "branch", QUARANTINE)
    topic.lake.table(topic.table).delete("offset = 0", branch=QUARANTINE)
    with pytest.raises(RefusedError, match=f"branch {QUARANTINE} is not Firn's"):
        quarantine.batches(topic.lake, topic.table)


def test_r22_firns_own_branch_may_be_put_back_and_written_to(topic: Topic) -> None:
    """By Iceberg's own means, which know nothing of Firn."""
    topic.land(updates("a=1", "b=1"), [NO_KEY, Record(3, None, b"no key either"), *updates("c=1", start=4)])
    topic.clean("full", force=True)
    full = topic.lake.table(topic.table).metadata.refs[QUARANTINE].snapshot_id
    topic.lake.table(topic.table).delete("true", branch=QUARANTINE)
    assert quarantine.batches(topic.lake, topic.table) == []
    topic.lake.table(topic.table).manage_snapshots().create_branch(full, QUARANTINE).commit()
    assert sum(batch.records for batch in quarantine.batches(topic.lake, topic.table)) == 2
    topic.lake.table(topic.table).delete("true", branch=QUARANTINE)
    assert quarantine.batches(topic.lake, topic.table) == []
