"""Cases of Kafka's own LogCleanerTest, on both sides (C10): Kafka's cleaner does what its tests say, and so does Firn.

A case has the name of Kafka's. ``a=1`` is a record, ``a=`` a tombstone; ``7:a=1`` was written by transactional producer
7, ``7+`` is its commit marker and ``7-`` its abort marker. A string is a segment.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.conformance import firn, kafka
from tests.conformance.compare import compare
from tests.conformance.workloads import (
    DAY,
    HOUR,
    MARKER_VALUE,
    MARKERS,
    ROOMY_BUFFER,
    START,
    Entry,
    Group,
    Mode,
    Step,
    Workload,
)

pytestmark = pytest.mark.nightly

STEPS = 5
_KEYS = {"COMMIT": MARKERS["COMMIT"], "LARGE": bytes(1 << 20)}
"""Keys that can't be typed."""
Offsets = Sequence[Sequence[int]]


class Case(NamedTuple):
    """The segments of each step, and the offsets that are there after the first cleanings."""

    given: Sequence[Sequence[str]]
    kept: Offsets


CASES = {
    # Markers stay while a cleaning sees records of their transactions; then the abort marker waits for its horizon.
    "testBasicTransactionAwareCleaning": Case(
        [["1:a=1 1:b=2 2:b=2 2:c=3 1:c=3 1:d=4 1- 2+ 1:b=2 1+"]],
        [[3, 6, 7, 8, 9], [3, 6, 7, 8, 9, 10], [3, 7, 8, 9, 10, 11]],
    ),
    # A commit marker goes in two stages after its records.
    "testCommitMarkerRemoval": Case(
        [["1:a=1 1:b=2 1:c=3 1+ 1:b=2 1+"], ["1:a=1 1:c=3 1+"]],
        [[0, 2, 3, 4, 5], [3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9, 10]],
    ),
    "testAbortMarkerRemoval": Case([["1:a=1 1:b=2 1:c=3 1- 1:c=3 1+"]], [[3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]]),
    # Kafka keeps the batch for its producer's last sequence, and the marker for the batch; a table has no batches.
    "testAbortMarkerRetentionWithEmptyBatch": Case(
        [["1:a=1 1:b=2 1-"], ["x=1"], ["1:c=1 1+"]], [[2], [2, 3], [3, 4, 5]]
    ),
    "testCommittedTransactionSpanningSegments": Case([["1:a=1", "1+"]], [[0, 1]]),
    "testAbortedTransactionSpanningSegments": Case([["1:a=1", "1-"]], [[1], [1, 2], [2, 3]]),
    # Undecided, decided, with a marker that waits, and without it.
    "testCleanWithTransactionsSpanningSegments": Case(
        [
            ["1:a=1 1:b=2 3:b=2 3:c=3 2:c=3 2:d=4"],
            ["2:e=5 2:f=6 3:f=6 3:g=7 1:g=7 1:h=8 2- 3:h=8 3:i=9 3+ 1:i=9 1:j=10 1-"],
        ],
        [
            [0, 1, 2, 3, 4, 5],
            [2, 3, 8, 9, 12, 13, 14, 15, 18],
            [2, 3, 8, 9, 12, 13, 14, 15, 18, 19],
            [2, 3, 8, 9, 13, 14, 15, 19, 20],
        ],
    ),
    "testMultiPassSegmentCleaningWithAbortedTransactions": Case(
        [["1:a=1 1:b=2 2:b=2 2:c=3 1:c=3 1:d=4 1+ 2+ 1:b=2 1:c=3 1- 2:d=4 2:e=5 1:e=5 1:f=6 1+ 2- 2:f=6 2:g=7 2+"]],
        [
            [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19],
            [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19, 20],
            [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19, 20, 21],
        ],
    ),
    "testCleaningWithKeysConflictingWithTxnMarkerKeys": Case([["1:a=1 1+ 2:COMMIT=1 2+"]], [[0, 1, 2, 3]]),
    # A key of a mebibyte (C6).
    "testLargeMessage": Case([["LARGE=1 a=1 LARGE=2"]], [[1, 2]]),
    # Nothing at or past an undecided transaction is cleaned.
    "testUndecidedTransactionalDataNotCleanable": Case(
        [["a=1 1:b=1", "a=2 b=2"], ["a=3"], ["1-"]],
        [[0, 1, 2, 3], [0, 1, 2, 3, 4], [3, 4, 5], [3, 4, 5, 6], [3, 4, 6, 7]],
    ),
}


@pytest.fixture(scope="module")
def offsets(lake: Lake, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Offsets]:
    """The records that Firn keeps after five cleanings of each case, each later by ``delete.retention.ms`` and none
    without something new; Kafka's cleaner has to agree."""
    workloads = tuple(_workload(name, case.given) for name, case in CASES.items())
    group = Group("cases", Mode.TRANSACTIONS, workloads, settling=0)
    kafkas = kafka.clean(group.workloads, tmp_path_factory.mktemp("driver"))
    firns = firn.clean(lake, engine, group)
    assert compare(group, kafkas, firns).disagreements == []
    return {
        workload.id: [sorted(one.records) for one in own] for workload, own in zip(group.workloads, firns, strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_c6_c10_firn_keeps_what_kafkas_cleaner_keeps(offsets: Mapping[str, Offsets], name: str) -> None:
    kept = CASES[name].kept
    assert offsets[name][: len(kept)] == kept


def _workload(name: str, given: Sequence[Sequence[str]]) -> Workload:
    steps: list[Step] = []
    offset = 0
    for number in range(STEPS):
        now = START + number * DAY
        segments = []
        for text in given[number] if number < len(given) else [f"end{number}=1"]:
            words = text.split()
            segments.append(tuple(_entry(offset + n, now - HOUR, word) for n, word in enumerate(words)))
            offset += len(words)
        steps.append(Step(now, tuple(segments)))
    configs = {"min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": str(DAY)}
    return Workload(name, configs, ROOMY_BUFFER, active=False, steps=tuple(steps))


def _entry(offset: int, timestamp: int, word: str) -> Entry:
    if word[-1] in "+-":
        marker = {"+": "COMMIT", "-": "ABORT"}[word[-1]]
        return Entry(offset, timestamp, MARKERS[marker], MARKER_VALUE, int(word[:-1]), marker)
    writer, _, record = word.rpartition(":")
    key, _, value = record.partition("=")
    producer = int(writer) if writer else None
    return Entry(offset, timestamp, _KEYS.get(key, key.encode()), value.encode() or None, producer)
