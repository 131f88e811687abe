"""C30: requests and progress live on branch `firn_erasures`, and nobody's are lost."""

from dataclasses import replace
from operator import methodcaller

import pytest
from pyiceberg.table.update import RemoveStatisticsUpdate

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ERASURES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.files import metadata_folder
from firnlake.lanes.erasure.memory import ErasuresChange, change_erasures, read_erasures
from firnlake.lanes.erasure.requests import Certificate, Destroyed, Erasures, Request, SearchProgress
from firnlake.maintain.maintain import maintain_table
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.committing import commit
from tests.support.erasing import location_of
from tests.support.lakes import TABLE, TOPIC_PARTITION, append, row

SECRET = b"s" * 32
DAY_MS = 86_400_000


def request(number: int, partition: int = 0) -> Request:
    return Request(number, "orders", partition, 10, bytes([number]) * 32, 1, 2, expire_history=False)


def progress(through: int, partition: int = 0) -> SearchProgress:
    return SearchProgress("orders", partition, through, None, 4, 99)


def ask(lake: Lake, *requests: Request) -> None:
    change_erasures(lake, TABLE, lambda old: Erasures(SECRET, (*old.requests, *requests), old.progress))


def held(lake: Lake) -> Erasures:
    return read_erasures(lake.table(TABLE))


@pytest.fixture
def asked(lake: Lake, table: str) -> str:
    """A table with two records and one request."""
    append(lake, [row(0), row(1)], table)
    ask(lake, request(1))
    return table


def test_a_table_without_requests_has_none(lake: Lake, table: str) -> None:
    assert read_erasures(lake.table(table)) == Erasures()


def test_what_is_stored_is_read_again(lake: Lake, table: str) -> None:
    append(lake, [row(0)], table)
    whole = Erasures(
        SECRET,
        (request(1), request(1, partition=1), replace(request(2), expire_history=True)),
        (replace(progress(1), committed=5), replace(progress(2, 1), before=7, committed=6)),
        (Destroyed("orders", 0, 1, 99, "file:///a", 12, "ab", 3),),
        (Certificate(1, 7, '{"a": 1}'), Certificate(1, 8, "{}")),
    )
    change_erasures(lake, table, lambda _: whole)
    found = read_erasures(lake.table(table))
    assert found == whole
    assert found.topic_partitions == (TOPIC_PARTITION, TopicPartition("orders", 1))
    assert [one.id for one in found.of(TOPIC_PARTITION)] == [1, 2]
    assert found.of(TopicPartition("orders", 7)) == ()
    assert found.certificate_of(1) == Certificate(1, 8, "{}")
    assert found.certificate_of(2) is None


@pytest.mark.usefixtures("asked")
class TestBranch:
    def test_readers_of_main_see_what_they_saw(self, lake: Lake) -> None:
        assert lakes.offsets(lake) == [0, 1]
        assert lakes.paths(on_branch(lake.table(TABLE), ERASURES)) == set()

    def test_every_change_keeps_what_others_added(self, lake: Lake) -> None:
        ask(lake, request(2))
        assert [one.id for one in held(lake).requests] == [1, 2]

    def test_a_lost_race_is_repeated_on_what_the_winner_wrote(self, lake: Lake) -> None:
        tries: list[int] = []

        def edit(old: Erasures) -> Erasures:
            if not tries:
                ask(lake, request(2))
            tries.append(len(old.requests))
            return replace(old, requests=(*old.requests, request(3)))

        change_erasures(lake, TABLE, edit)
        assert [one.id for one in held(lake).requests] == [1, 2, 3]
        assert (tries[0], tries[-1]) == (1, 2)
        own = on_disk(metadata_folder(lake.table(TABLE)))
        attached = {one.statistics_path.rpartition("/")[2] for one in lake.table(TABLE).metadata.statistics}
        assert attached < {path.name for path in own.glob("*.puffin")}, "a commit deletes nothing, not even a lost try"

    def test_c25_what_changes_nothing_is_no_commit(self, lake: Lake) -> None:
        before = lakes.snapshot(lake)
        change_erasures(lake, TABLE, lambda old: replace(old, requests=old.requests))
        assert lakes.snapshot(lake) == before

    def test_progress_names_its_commit(self, lake: Lake) -> None:
        table = lake.table(TABLE)
        change = ErasuresChange(lambda old: old.with_progress([replace(progress(1), snapshot_id=prepared.snapshot_id)]))
        prepared = Commit(table, [(ERASURES, change)])
        commit(lake, prepared)
        (found,) = held(lake).progress
        main = lake.table(TABLE).current_snapshot()
        assert main is not None
        assert (found.snapshot_id, found.committed) == (main.snapshot_id, main.sequence_number)

    def test_progress_replaces_older_progress(self, lake: Lake) -> None:
        for done in (progress(1), progress(2), progress(3, partition=1)):
            change_erasures(lake, TABLE, methodcaller("with_progress", [done]))
        assert [(one.partition, one.through) for one in held(lake).progress] == [(0, 2), (1, 3)]

    def test_c29_maintenance_keeps_the_requests_and_drops_older_files(self, lake: Lake) -> None:
        ask(lake, request(2))
        metadata = on_disk(metadata_folder(lake.table(TABLE)))
        assert len(list(metadata.glob("*.puffin"))) == 2
        maintain_table(lake, TABLE, clock.now_ms() + 30 * DAY_MS, remove=True)
        assert len(list(metadata.glob("*.puffin"))) == 1
        assert [one.id for one in held(lake).requests] == [1, 2]


@pytest.mark.usefixtures("asked")
class TestRefusals:
    def test_a_lost_file(self, lake: Lake) -> None:
        on_disk(location_of(lake.table(TABLE)) or "").unlink()
        with pytest.raises(RefusedError, match=rf"table {TABLE}: its requests to erase keys: .*puffin is gone"):
            held(lake)

    def test_a_damaged_file(self, lake: Lake) -> None:
        on_disk(location_of(lake.table(TABLE)) or "").write_bytes(b"PFA1 and nothing else PFA1")
        with pytest.raises(RefusedError, match=r"its requests to erase keys: .*puffin is damaged"):
            held(lake)

    def test_a_detached_file(self, lake: Lake) -> None:
        table = lake.table(TABLE)
        head = table.metadata.refs[ERASURES].snapshot_id
        lake.catalog.commit_table(table, (), (RemoveStatisticsUpdate.model_validate({"snapshot-id": head}),))
        with pytest.raises(RefusedError, match=rf"snapshot {head} of branch firn_erasures has no statistics file"):
            held(lake)

    def test_nothing_is_added_to_requests_that_are_lost(self, lake: Lake) -> None:
        on_disk(location_of(lake.table(TABLE)) or "").unlink()
        with pytest.raises(RefusedError, match="is gone"):
            ask(lake, request(2))
