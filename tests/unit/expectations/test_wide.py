"""A plan that is judged in buckets is judged as in one piece: the same figures, broken rules and samples."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake_expectations.in_buckets import KeyBuckets
from firnlake_expectations.judge import Limits, examine
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE, Layout
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
    gathered,
    part,
    table,
)
from tests.unit.expectations.test_promises import SABOTAGE, in_world

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings
    from tests.support.judged import Records


def both(inputs: Records, outputs: Records, left: Records, claim: Claim, *, closely: bool) -> tuple[Findings, Findings]:
    """Findings in one piece, and in buckets."""
    parts = [part(BEFORE, table(inputs)), part(AFTER, table(outputs)), part(IN_PLACE, table(left))]
    layout = Layout(SCHEMA, KAFKAS, closely=closely)
    (narrow,) = examine(parts, layout, [claim], "full", Limits())
    buckets = KeyBuckets(layout, claim, 2, 1)
    spread = chain.from_iterable(buckets.spread([one], Limits()) for one in parts)
    return narrow, gathered(buckets, spread, "full")


@pytest.mark.parametrize("closely", [False, True], ids=["fingerprint", "values"])
def test_every_sabotage_is_found_in_buckets_as_in_one_piece(closely: bool) -> None:
    inputs = [one for number in range(len(SABOTAGE)) for one in in_world(number, INPUTS)]
    outputs = [one for number, case in enumerate(SABOTAGE.values()) for one in in_world(number, case[0])]
    narrow, wide = both(inputs, outputs, [], CLAIM, closely=closely)
    assert wide == narrow
    assert narrow.broken


def test_a_right_result_is_right_in_buckets() -> None:
    narrow, wide = both(INPUTS, OUTPUTS, [], CLAIM, closely=True)
    assert wide == narrow
    assert not wide.broken


def test_a_bucket_that_comes_in_many_pieces_is_judged_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnlake_expectations.filling.ROWS", 2048)
    monkeypatch.setattr("firnlake_expectations.in_buckets.PIECE_BYTES", 1)
    inputs = [Record(offset, b"k%d" % (offset % 4500)) for offset in range(9000)]
    outputs = [replace(one, level=CLAIM.level_out) for one in inputs[4500:-1]]
    narrow, wide = both(inputs, outputs, [], replace(CLAIM, log_end_offset=8999), closely=True)
    assert wide == narrow
    assert narrow.broken


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


@settings(max_examples=times(10), deadline=None)
@given(
    inputs=st.lists(_RECORDS, max_size=12),
    outputs=st.lists(_RECORDS, max_size=8),
    kept=st.booleans(),
    left=st.lists(_RECORDS, max_size=3),
    claim=st.sampled_from([CLAIM, MERGE]),
    closely=st.booleans(),
)
def test_buckets_add_up_to_what_one_piece_gives(
    inputs: Records, outputs: Records, kept: bool, left: Records, claim: Claim, closely: bool
) -> None:
    written = [replace(one, level=claim.level_out) for one in inputs] if kept else outputs
    narrow, wide = both(inputs, written, left, claim, closely=closely)
    assert wide.figures == narrow.figures
    assert wide.broken == narrow.broken
    assert wide.fingerprint == narrow.fingerprint
    assert {rule: len(some) for rule, some in wide.samples.items()} == {
        rule: len(some) for rule, some in narrow.samples.items()
    }
