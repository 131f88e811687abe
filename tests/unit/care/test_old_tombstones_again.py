"""C30: tombstones are requested once, whatever lands again, is cleaned or is certified meanwhile."""

from dataclasses import replace

from expectations.certificate import certificate_page
from pipeline import clock
from pipeline.care import Kind, care_table
from pipeline.care.old_tombstones import old_tombstones
from pipeline.erase.ask import ask
from pipeline.erase.change import change_erasures
from pipeline.erase.requests import Certificate, Erasures
from pipeline.errors import FirnError
from pipeline.history import ancestors
from pipeline.prove.certificate import content_of
from pipeline.prove.status import status
from pipeline.prove.verify import verify
from pipeline.sense import Lane
from tests.support.erasing import erasures
from tests.support.lakes import together
from tests.support.old_tombstones import MAX, OLD, YOUNG, asked, care, digest, record
from tests.support.topics import DAY, NOW, Topic


def commits(topic: Topic) -> int:
    return len(list(ancestors(topic.lake.table(topic.table))))


class TestAgain:
    def test_c25_a_second_run_does_nothing(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", at=YOUNG), record(2, b"c", b"1")])
        care(limited)
        before, known = commits(limited), erasures(limited)
        assert care(limited) == []
        assert care(limited, NOW + DAY // 24) == []
        assert (commits(limited), erasures(limited)) == (before, known)

    def test_c25_a_file_without_an_old_one_is_read_once(self, limited: Topic) -> None:
        limited.land([record(0, b"a", at=YOUNG), record(1, b"b", b"1")])
        assert care(limited) == []
        before = commits(limited)
        assert len(erasures(limited).looked) == 1
        assert care(limited) == []
        assert commits(limited) == before

    def test_c22_two_at_a_time_make_one_request_under_one_secret(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        done = together(lambda: care(limited), lambda: care(limited))
        assert [one for one in done if isinstance(one, FirnError)] == []
        care(limited)
        assert asked(limited) == [(1, 0, 1, OLD + MAX)]
        known = erasures(limited)
        assert [one.digest for one in known.requests] == [digest(known, b"a")]

    def test_c30_a_dry_run_only_counts(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b", b"1")])
        before = commits(limited)
        shown = care(limited, remove=False)
        assert commits(limited) == before
        assert erasures(limited) == Erasures()
        assert care(limited) == shown
        assert [one.kind for one in shown] == [Kind.REQUEST]

    def test_a_dry_run_of_all_care_tells_what_a_run_does(self, limited: Topic) -> None:
        """The commit that adds the request makes the snapshot before it old enough to go."""
        limited.land([record(0, b"a"), record(1, b"b", b"1")], [record(2, b"b", b"2")])
        limits = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "1"}
        limited.lake.set_properties(limited.table, limits)
        later = clock.now_ms() + 30 * DAY
        shown = care_table(limited.lake, limited.table, later, remove=False)
        assert any(one.goes and one.kind is Kind.SNAPSHOTS for one in shown)
        assert care_table(limited.lake, limited.table, later, remove=True) == shown

    def test_c30_what_is_requested_makes_no_further_row(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b"), record(2, b"c", b"1")])
        ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=DAY)
        care(limited)
        assert asked(limited) == [(1, 0, 3, NOW + DAY), (2, 0, 2, OLD + MAX)]

    def test_c30_a_later_deadline_is_not_enough(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(2, b"c", b"1")])
        ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=MAX)
        care(limited)
        assert asked(limited) == [(1, 0, 3, NOW + MAX), (2, 0, 1, OLD + MAX)]

    def test_c30_what_was_written_anew_is_no_new_tombstone(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"b")], [record(2, b"c", b"1")])
        care(limited)
        before = asked(limited)
        limited.clean("full")
        care(limited)
        assert asked(limited) == before
        assert care(limited) == []

    def test_c30_an_old_tombstone_that_lands_late_is_found(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(5, b"c", b"1")])
        care(limited)
        limited.append([record(3, b"b", at=OLD - 3 * DAY)])
        care(limited)
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (2, 0, 4, OLD - 3 * DAY + MAX)]

    def test_c30_a_second_tombstone_of_a_key_has_its_own_deadline(self, limited: Topic) -> None:
        limited.land([record(0, b"a"), record(1, b"a", at=YOUNG), record(5, b"c", b"1")])
        care(limited)
        care(limited, NOW + 4 * DAY)
        assert asked(limited) == [(1, 0, 1, OLD + MAX), (2, 0, 2, YOUNG + MAX)]

    def test_c30_the_oldest_come_first_where_there_are_too_many(self, limited: Topic) -> None:
        limited.land(
            [record(0, b"a", at=OLD), record(1, b"b", at=OLD - 9), record(2, b"c", at=OLD - 5)],
            [record(3, b"d", at=OLD - 7), record(4, b"e", b"1")],
        )
        found = []
        for _ in range(3):
            old_tombstones(limited.lake, limited.table, NOW, remove=True, most=2)
            found.append(sorted(below for _, _, below, _ in asked(limited)))
        assert found == [[2, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
        before = commits(limited)
        assert old_tombstones(limited.lake, limited.table, NOW, remove=True, most=2) == ([], False)
        assert commits(limited) == before


def test_c30_a_certified_request_covers_a_tombstone_that_lands_again(limited: Topic) -> None:
    limited.land([record(0, b"a"), record(1, b"b", b"1")])
    ask(limited.lake, limited.table, [[b"a"]], NOW, within_ms=MAX)
    certificate = Certificate(1, NOW, "{}")
    change_erasures(limited.lake, limited.table, lambda old: replace(old, certificates=(certificate,)))
    care(limited)
    assert [one.id for one in erasures(limited).requests] == [1]


def test_c30_from_tombstone_to_certificate(limited: Topic) -> None:
    """The clock of the machine, because snapshots have it."""
    now = clock.now_ms()
    old = now - 13 * DAY
    limited.lake.set_properties(limited.table, {"firn.erase.history": "expire"})
    limited.land(
        [record(0, b"a", b"1", old), record(1, b"b", b"1", old), record(2, b"a", None, old)],
        [record(3, b"a", b"2", old), record(4, b"d", None, old + 9), record(5, b"c", b"1", old)],
    )
    assert [one.name for one in care(limited, now) if one.kind is Kind.REQUEST] == ["request 1"]
    assert limited.clean(Lane.ERASE, now) == [], "it waits for others"
    limited.clean(Lane.ERASE, now + DAY)
    assert limited.offsets() == [1, 3, 5], "the newer record of the key stays"
    deadline = old + MAX
    half = now + (deadline - now) // 2
    (before,) = status(limited.lake, limited.table, now + DAY)
    assert (before.state(now + DAY), before.deadline_ms) == ("erased", deadline)
    found = care_table(limited.lake, limited.table, half + 1, remove=True)
    assert [one.reason.startswith("issued: ") for one in found if one.kind is Kind.CERTIFICATE] == [True]
    (after,) = status(limited.lake, limited.table, half + 1)
    assert after.state(half + 1) == "certified"
    assert limited.offsets() == [1, 3, 5]
    known = erasures(limited)
    (issued,) = known.certificates
    told = content_of(issued)
    assert (told["in_time"], told["deadline"]) == (True, clock.show_ms(deadline))
    assert told["topic_partitions"] == [{"topic": "orders", "partition": 0, "below_offset": 3}]
    expected = [(digest(known, b"a"), 3, deadline), (digest(known, b"d"), 5, deadline + 9)]
    assert [(one["digest"], one["below_offset"], one["deadline"]) for one in told["by_key"]] == [
        (key.hex(), below, clock.show_ms(until)) for key, below, until in sorted(expected)
    ]
    assert told["landed_again"] == [digest(known, b"a").hex()]
    page = certificate_page(told, "1.json")
    assert "Each key has an offset and a deadline of its own" in page
    again = verify(limited.lake, limited.table, [b"a"], limited.engine)
    assert (again.holds, again.landed_again, again.landed_before) == (True, True, True)
    gone = verify(limited.lake, limited.table, [b"d"], limited.engine)
    assert (gone.holds, gone.landed_again) == (True, False)
