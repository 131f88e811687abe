"""C5: what two jobs, or one job twice, would quarantine lies there once, whatever the history knows."""

import pytest

from firnlake.errors import ConflictError, FirnError, GoneError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import records as quarantined
from firnlake.job.collect import discard
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, stages_of
from firnlake.publish.attempts import Publication
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import late
from tests.support.lakes import NOW, TABLE, Fates, append, append_two, only_plan, ready, row
from tests.support.publishing import publish


@pytest.fixture
def jobs(lake: Lake, table: str) -> tuple[Stage, Stage]:
    """Two jobs that would move the same two records without a key, and were both judged."""
    assert table == TABLE
    append_two(lake, row(0, key=None), row(1, key=None))
    append(lake, [row(2)])
    return staged(lake, only_plan(lake)), staged(lake, only_plan(lake, now_ms=NOW + 1))


def staged(lake: Lake, plan: Plan) -> Stage:
    moved = [row(offset, key=None, level=QUARANTINED) for offset in (0, 1)]
    return ready(lake, plan, [*moved, row(2)], Fates(quarantined=2))


def forget(lake: Lake) -> None:
    """The owner expires everything but what the branches have now; another writer was there since."""
    append(lake, [row(3)])
    heads = {ref.snapshot_id for ref in lake.table(TABLE).metadata.refs.values()}
    old = [one.snapshot_id for one in lake.table(TABLE).metadata.snapshots if one.snapshot_id not in heads]
    lake.table(TABLE).maintenance.expire_snapshots().by_ids(old).commit()


def moved(lake: Lake) -> list[tuple[int, str]]:
    return [(one.offset, one.job) for one in quarantined(lake, TABLE, 10)]


@pytest.mark.parametrize("forgotten", [False, True])
def test_c5_c22_of_two_jobs_one_moves_them(lake: Lake, jobs: tuple[Stage, Stage], forgotten: bool) -> None:
    first, second = jobs
    publish(lake, first.identifier)
    if forgotten:
        forget(lake)
    with pytest.raises(ConflictError, match="plan again"):
        publish(lake, second.identifier)
    discard(lake, second.identifier)
    assert moved(lake) == [(0, first.job_id), (1, first.job_id)]
    assert lakes.offsets(lake) == ([2, 3] if forgotten else [2])
    assert stages_of(lake, TABLE) == []


def test_c5_c22_of_two_at_the_same_time_as_well(lake: Lake, jobs: tuple[Stage, Stage]) -> None:
    first, second = jobs
    done = lakes.together(*(lambda one=one: publish(Lake.embedded(lake.home), one.identifier) for one in jobs))
    assert sorted(isinstance(one, FirnError) for one in done) == [False, True]
    winner = first if isinstance(done[0], Publication) else second
    assert moved(lake) == [(0, winner.job_id), (1, winner.job_id)]
    assert lakes.offsets(lake) == [2]


def test_c5_c25_a_job_that_is_published_again_moves_nothing(lake: Lake, jobs: tuple[Stage, Stage]) -> None:
    first, _ = jobs
    publish(lake, first.identifier)
    assert publish(lake, first.identifier).repeated
    assert moved(lake) == [(0, first.job_id), (1, first.job_id)]


@pytest.mark.parametrize("left", [False, True], ids=["stage deleted", "stage left"])
def test_c5_c25_nor_does_one_whose_commit_the_history_forgot(lake: Lake, jobs: tuple[Stage, Stage], left: bool) -> None:
    """Its publisher may have died after the commit, before it deleted the stage."""
    first, _ = jobs
    documents = {path: path.read_bytes() for path in files_under(on_disk(first.documents.location))}
    publish(lake, first.identifier)
    forget(lake)
    for path, content in documents.items() if left else ():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with pytest.raises(ConflictError if left else GoneError):
        publish(lake, first.identifier)
    if left:
        discard(lake, first.identifier)
    assert moved(lake) == [(0, first.job_id), (1, first.job_id)]
    assert all(on_disk(path).exists() for path in lakes.held(lake.table(TABLE)))


def test_c5_c25_what_a_publisher_without_an_answer_moved_is_there_once(lake: Lake, jobs: tuple[Stage, Stage]) -> None:
    """Its first request arrives after it has heard of a broken connection, and has asked again."""
    first, second = jobs
    slow, catalog = late(lake, "records", "no")
    publish(slow, first.identifier)
    assert catalog.under_way
    with pytest.raises(Exception, match="main"):
        catalog.under_way()
    with pytest.raises(ConflictError, match="plan again"):
        publish(lake, second.identifier)
    assert moved(lake) == [(0, first.job_id), (1, first.job_id)]
    assert lakes.offsets(lake) == [2]
