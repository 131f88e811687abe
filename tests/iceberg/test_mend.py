"""C36: ``firn mend`` beside other commits and lanes, and what an erasure finds on its branch."""

import pytest

from firnlake import clock
from firnlake.engine.engine import LocalEngine
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import MENDED
from firnlake.lanes.erasure.certificate import certify
from firnlake.maintain.maintain import maintain_table
from firnlake.maintain.mend import MOST_FILES, mend
from firnlake.table.policy import DAY_MS
from firnlake.validate.basis import Committed
from infra.foreign.files import on_disk
from tests.support.topics import DAY, NOW, Topic, head, held, landed, lose, request, shown, take, tear


@pytest.fixture
def files(topic: Topic) -> list[str]:
    """Three segments of orders-0, at offsets 0 to 1, 2 to 3 and 4."""
    return landed(topic, ["a=1", "b=1"], ["a=2", "c=1"], ["d=1"])


def test_a_lost_file_that_is_there_again_is_not_taken(topic: Topic, files: list[str]) -> None:
    content = on_disk(files[1]).read_bytes()
    lost = lose(files[1])
    before, mending = head(topic), shown(topic, files[1])
    lost.write_bytes(content)
    with pytest.raises(ConflictError, match="was lost, and is there again"):
        mend(topic.lake, mending)
    assert head(topic) == before


def test_a_file_that_a_lane_has_rewritten_meanwhile_is_not_taken(topic: Topic, files: list[str]) -> None:
    mending = shown(topic, files[1])
    topic.clean("full", force=True)
    before = head(topic)
    with pytest.raises(ConflictError, match=f"not live: 1, first {files[1]}"):
        mend(topic.lake, mending)
    with pytest.raises(RefusedError, match="has no data file"):
        shown(topic, files[1])
    with pytest.raises(RefusedError, match="101 files at once; allowed: up to 100"):
        shown(topic, *map(str, range(MOST_FILES + 1)))
    assert (head(topic), held(topic)) == (before, set())


def test_the_mending_is_not_judged_and_later_commits_are(topic: Topic, files: list[str]) -> None:
    snapshot_id = take(topic, files[1])
    with pytest.raises(RefusedError, match="is not the result of a plan"):
        Committed.find(topic.lake, topic.table, snapshot_id)
    topic.clean("full", force=True)
    assert Committed.find(topic.lake, topic.table, None).before.snapshot_id == snapshot_id


class TestErasure:
    """C30: the branch is a place where a requested key is found. No lane erases it there, so the branch blocks."""

    def blockers(self, topic: Topic) -> dict[str, str]:
        """What keeps the request from its certificate after the history has expired, and why."""
        for _ in range(2):  # what the cleaning of the first run writes is read by the second
            topic.run(NOW + 40 * DAY, force=True)
        maintain_table(topic.lake, topic.table, clock.now_ms() + 400 * DAY_MS, remove=True)
        done = certify(topic.lake, topic.table, NOW + 40 * DAY, LocalEngine(1))
        return {one.where: str(one) for problems in done.blocked.values() for one in problems}

    def test_a_key_on_the_branch_is_found_and_dropping_it_lets_go(self, topic: Topic, files: list[str]) -> None:
        take(topic, files[1])
        request(topic, b"b")
        assert self.blockers(topic) == {}, "the file has no such key"
        request(topic, b"c")
        found = self.blockers(topic)
        assert found.keys() == {f"branch {MENDED}"}
        assert ": it holds records of 1 key to erase" in found[f"branch {MENDED}"]
        assert f"DROP BRANCH {MENDED}" in found[f"branch {MENDED}"]
        topic.lake.table(topic.table).manage_snapshots().remove_branch(MENDED).commit()
        assert self.blockers(topic) == {}

    def test_a_torn_file_may_hold_any_key(self, topic: Topic, files: list[str]) -> None:
        tear(files[1])
        take(topic, files[1])
        request(topic, b"b")
        assert self.blockers(topic).keys() == {f"branch {MENDED}"}
