"""The judge finds the same with little memory as with enough, and from sums the same as record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake_expectations.judge import Limits, examine
from firnlake_expectations.tables import AFTER, BEFORE, SHOWN, Layout
from tests.support.examples import times
from tests.support.judged import (
    CLAIM,
    INPUTS,
    KAFKAS,
    LATER,
    MERGE,
    OUTPUTS,
    PAST,
    SCHEMA,
    STAMP,
    Record,
    hiding,
    part,
    table,
)
from tests.unit.expectations import test_convert, test_erasure
from tests.unit.expectations.test_promises import SABOTAGE, in_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings
    from firnlake_expectations.tables import Part
    from tests.support.judged import Records

MEMORY_BYTES = 64 << 20
RECORDS = 200_000
"""So many records that the judge needs more than MEMORY_BYTES."""
SPAN = 100 * len(SABOTAGE)


def many(records: Records, copies: int) -> pa.Table:
    """Copies of the records, each with other keys, and with offsets SPAN higher than those of the copy before it."""
    own = table(records)
    copy = np.repeat(np.arange(copies), own.num_rows)
    every = own.take(np.tile(np.arange(own.num_rows), copies))
    names = pa.array(copy).cast(pa.string()).cast(pa.large_binary())
    changed = {
        "key": pc.binary_join_element_wise(names, every.column("key"), pa.scalar(b"-", pa.large_binary())),
        "offset": pc.add(every.column("offset"), pa.array(SPAN * copy)),
    }
    return pa.table([changed.get(name, every.column(name)) for name in SCHEMA.names], SCHEMA)


def rewritten(inputs: Records, outputs: Records) -> list[Part]:
    copies = RECORDS // len(inputs)
    return [part(BEFORE, many(inputs, copies)), part(AFTER, many(outputs, copies))]


def hidden(visible: Records, gone: Records) -> list[Part]:
    copies = RECORDS // len(visible + gone)
    every = pa.concat_tables([many(visible, copies), many(gone, copies)])
    after = hiding("shown", copies * len(visible), every.num_rows)
    return [replace(part(SHOWN, every), name="shown", listed=hiding("shown", 0, 0), after=after)]


SABOTAGED = (
    [one for number in range(len(SABOTAGE)) for one in in_world(number, INPUTS)],
    [one for number, (outputs, *_) in enumerate(SABOTAGE.values()) for one in in_world(number, outputs)],
)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("claim", "make", "trusted"),
    [
        (replace(CLAIM, log_end_offset=1 << 40), lambda: rewritten(in_world(0, INPUTS), in_world(0, OUTPUTS)), True),
        (CLAIM, lambda: rewritten(*SABOTAGED), False),
        (test_erasure.ERASE, lambda: rewritten(test_erasure.INPUTS, test_erasure.OUTPUTS), False),
        (test_convert.CONVERT, lambda: hidden(test_convert.HELD[:1], test_convert.HELD[1:]), True),
    ],
    ids=["clean, right", "clean, broken", "erase, broken", "convert, broken"],
)
def test_c17_a_plan_that_exceeds_the_memory_is_judged_as_one_that_does_not(
    claim: Claim, make: Callable[[], list[Part]], trusted: bool, tmp_path: Path
) -> None:
    parts, asked = make(), test_erasure.requested(b"0-a") if claim.lane == "erase" else None

    def found(bounds: Limits) -> Findings:
        layout = Layout(SCHEMA, KAFKAS, closely=not trusted, requested=asked, flagged=claim.lane == "convert")
        (one,) = examine(parts, layout, [claim], "full", bounds)
        return one

    with pytest.raises(duckdb.OutOfMemoryException):
        found(Limits(1, MEMORY_BYTES))
    assert found(Limits(1, MEMORY_BYTES, str(tmp_path))) == found(Limits())


_KEYS = st.sampled_from([None, b"", b"a", b"b", b"c"])
_RECORDS = st.builds(
    Record,
    offset=st.integers(0, 70),
    key=_KEYS,
    value=st.sampled_from([None, b"", b"v"]),
    level=st.sampled_from([-2, -1, 0, 1, 2, 3, None]),
    delete_horizon=st.sampled_from([None, PAST, LATER, STAMP]),
    partition=st.sampled_from([3, 3, 3, 4]),
)


@settings(max_examples=times(5), deadline=None)
@given(
    inputs=st.lists(_RECORDS, max_size=12),
    outputs=st.lists(_RECORDS, max_size=8),
    claim=st.sampled_from([CLAIM, MERGE]),
)
def test_a_plan_whose_sums_agree_is_judged_as_if_every_record_were_compared(
    inputs: Records, outputs: Records, claim: Claim
) -> None:
    """Plans that sums settle need no closer look: the findings are the same without."""
    newest = {one.key: one for one in sorted(inputs, key=lambda one: one.offset) if one.key is not None}
    for written in (outputs, [replace(one, level=claim.level_out) for one in newest.values()]):
        parts = [part(BEFORE, table(inputs)), part(AFTER, table(written))]
        layout = Layout(SCHEMA, KAFKAS, closely=True)
        (settled,) = examine(parts, layout, [claim], "full", Limits())
        (compared,) = examine(parts, layout, [claim], "full", Limits(), settle=False)
        assert settled == compared
