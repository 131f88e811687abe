"""A cleaner with a defect: whatever is broken in it, the judge, which shares no rule with it, refuses the result."""

from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from firnlake.compact import erase, rewrite, survey
from firnlake.compact.compact import compact
from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome
from firnlake.compact.marks import Marks
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.keys import NO_KEY
from firnlake.job.plan import Plan
from firnlake.lanes.erasure.requests import RequestedKeys
from firnlake.validate.validate import validate
from tests.support.judged import replaced
from tests.support.topics import DAY, NOW, Record, Topic, request, updates

HISTORY = [
    *updates("a=1", "b=1", "c=", "a=2", "d=1", "b="),
    Record(6, None, b"no key"),
    *updates("e=1", "a=3", start=7),
]
Defect = tuple[Any, str, Callable[..., Any]]
"""A module or class, the name of a function of it, and what is called in its place, first with that function."""


def _decided(change: Callable[[Any, Any], Any]) -> Defect:
    """``change`` gets the outcome of each record, and the records."""
    return rewrite, "outcomes", lambda own, records, plan: change(own(records, plan), records)


def _written(column: str, change: Callable[[pa.Array], pa.Array]) -> Defect:
    """``change`` gets the values of a column that is about to be written."""

    def stamped(own: Any, inputs: Any, records: pa.RecordBatch, *args: Any) -> Any:
        place = records.schema.get_field_index(column)
        broken = change(records.column(place)).cast(records.column(place).type)
        return own(inputs, records.set_column(place, records.schema.field(place), broken), *args)

    return rewrite, "_stamped", stamped


def _requested(change: Callable[..., Any]) -> Defect:
    return RequestedKeys, "count", change


def _all(segments: Any) -> Any:
    return [(one, Marks.of(marks.records, taken_out=np.ones(marks.records, dtype=np.bool_))) for one, marks in segments]


def cleaning(topic: Topic) -> list[Plan]:
    topic.land(HISTORY[:4], HISTORY[4:])
    return topic.plans("full", force=True)


def erasure(topic: Topic) -> list[Plan]:
    topic.land(HISTORY[:4], HISTORY[4:])
    request(topic, b"a")
    topic.land(updates("a=9", "f=1", "a=8", start=9))
    request(topic, b"f")
    return topic.plans("erase", force=True)


def large_tail(topic: Topic) -> list[Plan]:
    """Most segments of the tail stay in place."""
    records = [Record(offset, b"k%02d" % offset, bytes(range(256)) * 2) for offset in range(40)]
    topic.create(segment_bytes="1024").land(records[:20], records[20:])
    topic.clean("full")
    topic.land([Record(40, b"k05", b"new")])
    return topic.plans("full", NOW + DAY, force=True)


History = Callable[[Topic], list[Plan]]
DEFECTS: dict[History, dict[str, Defect]] = {
    cleaning: {
        "loses a batch": (rewrite, "ahead", lambda own, items: islice(own(items), 1, None)),
        "changes a value": _written("value", lambda old: pa.array([one and one + b"!" for one in old.to_pylist()])),
        "reads a batch twice": (
            rewrite,
            "ahead",
            lambda own, items: (one for item in own(items) for one in (item, item)),
        ),
        "keeps the oldest": (
            survey,
            "latest_per_key",
            lambda own, codes, offsets, removed=None: own(codes, -offsets, removed),
        ),
        "forgets to stamp": (rewrite, "horizons", lambda own, *args: np.full_like(own(*args), NO_HORIZON)),
        "removes tombstones at once": _decided(
            lambda found, records: np.where(
                (found == Outcome.KEPT) & records.tombstone & records.newest,
                np.uint8(Outcome.TOMBSTONE_REMOVED),
                found,
            )
        ),
        "drops what has no key": _decided(
            lambda found, _: np.where(found == Outcome.QUARANTINED, np.uint8(Outcome.SUPERSEDED), found)
        ),
    },
    large_tail: {
        "leaves a segment in place": (survey, "places_in", lambda _own, found, _known: np.full(len(found), NO_KEY)),
    },
    erasure: {
        "finds nobody": _requested(lambda own, *args: np.zeros_like(own(*args))),
        "takes newer records": _requested(lambda own, *args: own(*args[:3], np.zeros_like(args[3]), args[4])),
        "takes the log end": (
            erase,
            "rewrite",
            lambda own, inputs, segments, target: own(inputs, _all(segments), target),
        ),
        "writes it as a tail": (rewrite, "_level_out", lambda *_: 3),
    },
}
CASES = [(history, name) for history, defects in DEFECTS.items() for name in defects]


@pytest.fixture(scope="module")
def planned(lake: Lake, engine: Engine) -> Callable[[History], tuple[Topic, list[Plan]]]:
    """Something to do; as no result of a broken cleaner is published, it is made once."""

    @cache
    def made(history: History) -> tuple[Topic, list[Plan]]:
        topic = Topic(lake, engine, f"db.{history.__name__}_of_broken_cleaners")
        return topic, history(topic)

    return made


@pytest.mark.parametrize(("history", "name"), CASES, ids=[f"{history.__name__} {name}" for history, name in CASES])
def test_c16_c30_the_judge_notices(planned: Any, monkeypatch: pytest.MonkeyPatch, history: History, name: str) -> None:
    """The plan is not compacted, or its result is not passed by the judge."""
    topic, (plan,) = planned(history)
    before = topic.rows()
    replaced(monkeypatch, *DEFECTS[history][name])
    # A plan of another time is another one, with a stage of its own.
    other = plan.model_copy(update={"now_ms": plan.now_ms + CASES.index((history, name))}).sealed()
    (done,) = compact(topic.lake, [other], topic.engine)
    if done.error is None:
        (judged,) = validate(topic.lake, [done.stage], topic.engine)
        assert judged.verdict is not None
        assert not judged.verdict.passed
    assert topic.rows() == before
