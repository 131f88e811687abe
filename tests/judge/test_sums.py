"""What the judge finds does not depend on how it counts: by sums or record by record, with little memory or enough."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake_expectations import views
from firnlake_expectations.case import AFTER, BEFORE, Case
from firnlake_expectations.duck import Duck
from firnlake_expectations.judge import examine
from firnlake_expectations.tables import Layout
from tests.judge.test_promises import TABLES, requested
from tests.support.examples import times
from tests.support.judged import CLEANING, KAFKAS, SCHEMA, Held, Planned, Rows, part, table
from tests.support.records import NOW, Record

if TYPE_CHECKING:
    from pathlib import Path

    from firnlake_expectations.case import Verdict

MERGE, ERASE = TABLES["merge"].right, TABLES["erase"].right
EVERY_SLICE = "CREATE TABLE unsettled AS SELECT plan, slice FROM newest FULL JOIN written_sums USING (plan, slice)"
MEMORY_BYTES = 64 << 20
RECORDS = 200_000
"""So many records that the judge needs more than MEMORY_BYTES."""


def many(records: Rows, copies: int) -> pa.Table:
    """Copies of the records, each with keys and offsets of its own."""
    copy = np.repeat(np.arange(copies), len(records))
    every = table(records).take(np.tile(np.arange(len(records)), copies))
    names = pa.array(copy).cast(pa.string()).cast(pa.binary())
    keys = pc.binary_join_element_wise(names, every.column("key"), pa.scalar(b"-", pa.binary()))
    changed = {"key": keys, "offset": pc.add(every.column("offset"), pa.array(100 * copy))}
    return pa.table([changed.get(name, every.column(name)) for name in SCHEMA.names], SCHEMA)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plan", "closely"),
    [(CLEANING.but(f"log_end_offset={1 << 40}"), False), (CLEANING.but("-1 =f=@7 =c=w@3"), True), (ERASE, False)],
    ids=["clean, right", "clean, broken", "erase, broken"],
)
def test_c17_a_plan_that_exceeds_the_memory_is_judged_as_one_that_does_not(
    plan: Planned, closely: bool, tmp_path: Path
) -> None:
    copies = RECORDS // len(plan.read)
    parts = part(BEFORE, many(plan.read, copies)), part(AFTER, many(plan.written, copies))
    layout = Layout(SCHEMA, KAFKAS, [Case(plan.claim, parts, **requested(8 if plan is ERASE else None))], closely)

    def found(*limits: Any) -> list[Verdict]:
        with closing(Duck(1, *limits)) as duck:
            return examine(duck, layout, "full")

    with pytest.raises(duckdb.OutOfMemoryException):
        found(MEMORY_BYTES)
    assert found(MEMORY_BYTES, str(tmp_path)) == found()


_PARTITIONS = st.sampled_from([0, 0, 0, 1])
_KEYS, _VALUES = st.sampled_from([None, b"", b"a", b"b", b"c"]), st.sampled_from([None, b"", b"v"])
_RECORDS = st.tuples(st.integers(0, 70), _KEYS, _VALUES, _PARTITIONS).map(lambda values: Record(*values))
_LEVELS = st.sampled_from([-2, -1, 0, 1, 2, 3, None])
_HORIZONS = st.sampled_from([None, NOW - 60_000, NOW + 60_000, CLEANING.claim.stamp_ms])
_HELD = st.tuples(_RECORDS, _LEVELS, _HORIZONS).map(lambda values: Held(*values))


@pytest.mark.nightly
@settings(max_examples=times(5), deadline=None)
@given(st.lists(_HELD, max_size=12), st.lists(_HELD, max_size=8), st.sampled_from([CLEANING, MERGE]))
def test_a_plan_whose_sums_agree_is_judged_as_if_every_record_were_compared(
    read: Rows, written: Rows, like: Planned
) -> None:
    newest = {
        one.record.key: one for one in sorted(read, key=lambda one: one.record.offset) if one.record.key is not None
    }
    for after in (written, [one._replace(level=like.claim.level_out) for one in newest.values()]):
        case = Case(like.claim, (part(BEFORE, table(read)), part(AFTER, table(after))))
        layout = Layout(SCHEMA, KAFKAS, [case], closely=True)
        judged = examine(Duck(), layout, "full")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(views, "_unsettled", lambda *_: EVERY_SLICE)
            assert examine(Duck(), layout, "full") == judged
