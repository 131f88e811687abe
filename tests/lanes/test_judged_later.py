"""What may happen to a table between the plan and its judgement: the judge needs the snapshot that the plan knew."""

from firnlake import clock
from firnlake.errors import ConflictError
from firnlake.job.stage import Stage
from firnlake.maintain.maintain import maintain_table
from firnlake.validate.validate import validate
from tests.support.topics import DAY, Topic, updates

SHORT = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}


def _compacted(topic: Topic) -> str:
    """The stage of a plan whose snapshot is past its age, since another append has landed."""
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    with topic.lake.table(topic.table).transaction() as change:
        change.set_properties(SHORT)
    (plan,) = topic.plans("full", clock.now_ms(), force=True)
    (done,) = topic.compacted(plan)
    topic.append(updates("c=1", start=3))
    return done.stage


def _conflict(topic: Topic, stage: str) -> str:
    (judged,) = validate(topic.lake, [stage], topic.engine)
    assert judged.verdict is None
    assert isinstance(judged.error, ConflictError)
    assert Stage.load(topic.lake, stage).failure is None, "C20: the next run plans again"
    return str(judged.error)


def test_maintenance_keeps_the_snapshots_that_open_jobs_were_planned_on(topic: Topic) -> None:
    stage = _compacted(topic)
    maintain_table(topic.lake, topic.table, clock.now_ms() + 60_000, remove=True)
    kept = topic.lake.table(topic.table).metadata.snapshots
    (judged,) = validate(topic.lake, [stage], topic.engine)
    assert judged.passed, judged.failure
    maintain_table(topic.lake, topic.table, clock.now_ms() + 30 * DAY, remove=True)
    assert len(topic.lake.table(topic.table).metadata.snapshots) < len(kept), "no job is as old"


def test_c23_without_that_snapshot_there_is_no_verdict_and_no_mark(topic: Topic) -> None:
    stage = _compacted(topic)
    table = topic.lake.table(topic.table)
    old = [one.snapshot_id for one in table.metadata.snapshots[:-1]]
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids([one for one in old if one not in heads]).commit()
    assert "is no longer in main's history" in _conflict(topic, stage)


def test_c8_a_retention_that_has_changed_since_makes_a_new_plan_necessary(topic: Topic) -> None:
    stage = _compacted(topic)
    with topic.lake.table(topic.table).transaction() as change:
        change.set_properties({"firn.delete.retention.ms": "7"})
    assert "delete.retention.ms = 86400000; topic orders has 7 by now" in _conflict(topic, stage)
