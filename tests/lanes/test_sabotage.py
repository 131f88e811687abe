"""A cleaner with a defect: whatever is broken in it, the judge, which shares no rule with it, refuses the result."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firnlake.compact import keys as survey
from firnlake.compact import rewrite, tail
from firnlake.compact.compact import compact
from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome
from firnlake.compact.marks import Marks
from firnlake.iceberg.keys import NO_KEY
from firnlake.lanes.erasure import erase
from firnlake.lanes.erasure.digests import RequestedKeys
from firnlake.validate.validate import validate
from tests.support.erasing import request
from tests.support.sabotage import refused, replaced
from tests.support.topics import DAY, NOW, Record, Topic, updates

HISTORY = [
    *updates("a=1", "b=1", "c=", "a=2", "d=1", "b="),
    Record(6, None, b"no key"),
    *updates("e=1", "a=3", start=7),
]
Broken = Callable[[pytest.MonkeyPatch], None]


def loses_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, rewrite, "ahead", lambda own, items: islice(own(items), 1, None))


def reads_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(own: Any, items: Iterable[Any]) -> Iterator[Any]:
        for item in own(items):
            yield item
            yield item

    replaced(monkeypatch, rewrite, "ahead", twice)


def takes_all_keys_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(own: Any, found: pa.ChunkedArray) -> Any:
        codes, known = own(found)
        return np.where(codes >= 0, 0, codes), known

    replaced(monkeypatch, survey, "codes_of", one)


def takes_equal_keys_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, survey, "codes_of", lambda own, found: (np.arange(len(found)), own(found)[1]))


def keeps_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(
        monkeypatch, survey, "latest_per_key", lambda own, codes, offsets, removed=None: own(codes, -offsets, removed)
    )


def forgets_to_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, rewrite, "horizons", lambda own, *args: np.full_like(own(*args), NO_HORIZON))


def stamps_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(own: Any, *args: Any) -> Any:
        found = own(*args)
        return np.where(found == NO_HORIZON, found, found - 1000)

    replaced(monkeypatch, rewrite, "horizons", early)


def removes_tombstones_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def removed(own: Any, records: Any, plan: Any) -> Any:
        found = own(records, plan)
        found[(found == Outcome.KEPT) & records.tombstone & records.newest] = Outcome.TOMBSTONE_REMOVED
        return found

    replaced(monkeypatch, rewrite, "outcomes", removed)


def drops_what_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropped(own: Any, records: Any, plan: Any) -> Any:
        found = own(records, plan)
        return np.where(found == Outcome.QUARANTINED, np.uint8(Outcome.SUPERSEDED), found)

    replaced(monkeypatch, rewrite, "outcomes", dropped)


def keeps_what_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(own: Any, records: Any, plan: Any) -> Any:
        found = own(records, plan)
        return np.where(found == Outcome.QUARANTINED, np.uint8(Outcome.KEPT), found)

    replaced(monkeypatch, rewrite, "outcomes", kept)


def changes_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(own: Any, inputs: Any, records: pa.RecordBatch, *args: Any) -> Any:
        place = records.schema.get_field_index("value")
        values = [value and value + b"!" for value in records.column(place).to_pylist()]
        broken = records.set_column(place, records.schema.field(place), pa.array(values, records.column(place).type))
        return own(inputs, broken, *args)

    replaced(monkeypatch, rewrite, "_stamped", changed)


def changes_a_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(own: Any, inputs: Any, records: pa.RecordBatch, *args: Any) -> Any:
        place = records.schema.get_field_index("timestamp")
        kind = records.column(place).type
        moved = pa.array(records.column(place).cast(pa.int64()).to_numpy() + 1, pa.int64()).cast(kind)
        return own(inputs, records.set_column(place, records.schema.field(place), moved), *args)

    replaced(monkeypatch, rewrite, "_stamped", changed)


def swaps_two_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value is there, but not at its offset."""

    def swapped(own: Any, inputs: Any, records: pa.RecordBatch, *args: Any) -> Any:
        place = records.schema.get_field_index("value")
        values = records.column(place).to_pylist()[::-1]
        broken = records.set_column(place, records.schema.field(place), pa.array(values, records.column(place).type))
        return own(inputs, broken, *args)

    replaced(monkeypatch, rewrite, "_stamped", swapped)


def writes_at_another_level(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(own: Any, inputs: Any, records: pa.RecordBatch, level: int, *args: Any) -> Any:
        return own(inputs, records, 2 if level == 3 else level, *args)

    replaced(monkeypatch, rewrite, "_stamped", other)


@pytest.mark.parametrize(
    "broken",
    [
        loses_a_batch,
        reads_a_batch_twice,
        takes_all_keys_for_one,
        takes_equal_keys_for_two,
        keeps_the_oldest,
        forgets_to_stamp,
        stamps_too_early,
        removes_tombstones_at_once,
        drops_what_has_no_key,
        keeps_what_has_no_key,
        changes_a_value,
        changes_a_timestamp,
        swaps_two_values,
        writes_at_another_level,
    ],
)
def test_the_judge_notices(topic: Topic, monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    topic.land(HISTORY[:4], HISTORY[4:])
    plans = topic.plans("full", force=True)
    broken(monkeypatch)
    (done,) = compact(topic.lake, plans, topic.engine)
    if done.error is None:
        (judged,) = validate(topic.lake, [done.stage], topic.engine)
        assert judged.error is None
        assert not judged.passed
    assert len(topic.rows()) == len(HISTORY), "nothing of it was published"


def test_a_sound_cleaner_passes(topic: Topic) -> None:
    topic.land(HISTORY[:4], HISTORY[4:])
    topic.clean("full", force=True)
    assert topic.offsets() == [2, 4, 5, 7, 8]


def test_c16_a_tail_segment_left_in_place_by_mistake_is_noticed(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(offset, b"k%02d" % offset, bytes(range(256)) * 2) for offset in range(40)]
    topic.create(segment_bytes="1024").land(records[:20], records[20:])
    topic.clean("full")
    topic.land([Record(40, b"k05", b"new")])
    plans = topic.plans("full", NOW + DAY, force=True)
    replaced(monkeypatch, tail, "places_in", lambda _own, found, _known: np.full(len(found), NO_KEY))
    refused(topic, plans)


def finds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, RequestedKeys, "count", lambda own, *args: np.zeros_like(own(*args)))


def misses_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def missed(own: Any, *args: Any) -> Any:
        found = own(*args)
        found[np.flatnonzero(found)[:1]] = False
        return found

    replaced(monkeypatch, RequestedKeys, "count", missed)


def takes_the_next_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, RequestedKeys, "count", lambda own, *args: own(*args) | np.roll(own(*args), 1))


def takes_newer_records(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, RequestedKeys, "count", lambda own, *args: own(*args[:3], np.zeros_like(args[3]), args[4]))


def takes_the_log_end(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, erase, "rewrite", lambda own, inputs, segments, target: own(inputs, _all(segments), target))


def _all(segments: Any) -> Any:
    return [(one, Marks(marks.records, taken_out=np.ones(marks.records, dtype=np.bool_))) for one, marks in segments]


def writes_it_as_a_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, rewrite, "_level_out", lambda *_: 3)


@pytest.mark.parametrize(
    "broken",
    [
        finds_nobody,
        misses_the_first,
        takes_the_next_as_well,
        takes_newer_records,
        takes_the_log_end,
        writes_it_as_a_tail,
        loses_a_batch,
        changes_a_value,
        swaps_two_values,
    ],
)
def test_c30_the_judge_notices_a_wrong_erasure(topic: Topic, monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    topic.land(HISTORY[:4], HISTORY[4:])
    request(topic, b"a")
    topic.land(updates("a=9", "f=1", "a=8", start=9))
    request(topic, b"f")
    plans = topic.plans("erase", force=True)
    broken(monkeypatch)
    (done,) = compact(topic.lake, plans, topic.engine)
    if done.error is None:
        (judged,) = validate(topic.lake, [done.stage], topic.engine)
        assert judged.error is None
        assert not judged.passed
    assert len(topic.rows()) == len(HISTORY) + 3, "nothing of it was published"
