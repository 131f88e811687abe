"""Cases of Kafka's own LogCleanerTest, on both sides (C10): Kafka's cleaner does what its tests say, and so does Firn.

Each case is told in tests/conformance/cases.py's few words; docs/conformance.md says which case of Kafka's it is.
"""

from collections.abc import Mapping, Sequence

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from tests.conformance import cases, firn, kafka
from tests.conformance.compare import compare

pytestmark = pytest.mark.nightly

CASES: Mapping[str, Sequence[Sequence[str]]] = {
    "basic": [["1:a=1 1:b=2 2:b=2 2:c=3 1:c=3 1:d=4 1- 2+ 1:b=2 1+"]],
    "commit-marker": [["1:a=1 1:b=2 1:c=3 1+ 1:b=2 1+"], ["1:a=1 1:c=3 1+"]],
    "abort-marker": [["1:a=1 1:b=2 1:c=3 1- 1:c=3 1+"]],
    "empty-batch": [["1:a=1 1:b=2 1-"], ["x=1"], ["1:c=1 1+"]],
    "commit-in-next-segment": [["1:a=1", "1+"]],
    "abort-in-next-segment": [["1:a=1", "1-"]],
    "over-segments": [
        ["1:a=1 1:b=2 3:b=2 3:c=3 2:c=3 2:d=4"],
        ["2:e=5 2:f=6 3:f=6 3:g=7 1:g=7 1:h=8 2- 3:h=8 3:i=9 3+ 1:i=9 1:j=10 1-"],
    ],
    "several-aborts": [
        ["1:a=1 1:b=2 2:b=2 2:c=3 1:c=3 1:d=4 1+ 2+ 1:b=2 1:c=3 1- 2:d=4 2:e=5 1:e=5 1:f=6 1+ 2- 2:f=6 2:g=7 2+"]
    ],
    "keys-like-markers": [["1:a=1 1+ 2:COMMIT=1 2+"]],
    "large": [["LARGE=1 a=1 LARGE=2"]],
    "undecided": [["a=1 1:b=1", "a=2 b=2"], ["a=3"], ["1-"]],
}

Offsets = Mapping[str, Sequence[Sequence[int]]]


@pytest.fixture(scope="module")
def offsets(lake: Lake, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Offsets:
    """The records that Firn keeps after each cleaning of each case; Kafka's cleaner has to agree."""
    group = cases.group("cases", CASES)
    kafkas = kafka.clean(group.workloads, tmp_path_factory.mktemp("driver"))
    firns = firn.clean(lake, engine, group)
    assert compare(group, kafkas, firns).disagreements == []
    return {
        workload.id: [sorted(one.records) for one in own] for workload, own in zip(group.workloads, firns, strict=True)
    }


def test_c10_aborted_records_neither_stay_nor_supersede(offsets: Offsets) -> None:
    first, second, third, *_ = offsets["basic"]
    assert first == [3, 6, 7, 8, 9], "markers stay while a cleaning sees records of their transactions"
    assert second == [3, 6, 7, 8, 9, 10], "now the abort marker waits for its horizon"
    assert third == [3, 7, 8, 9, 10, 11]


def test_c10_a_commit_marker_goes_in_two_stages_after_its_records(offsets: Offsets) -> None:
    assert offsets["commit-marker"][:4] == [
        [0, 2, 3, 4, 5],
        [3, 4, 5, 6, 7, 8],
        [3, 4, 5, 6, 7, 8, 9],
        [4, 5, 6, 7, 8, 9, 10],
    ]


def test_c10_an_abort_takes_three_cleanings(offsets: Offsets) -> None:
    assert offsets["abort-marker"][:3] == [[3, 4, 5], [3, 4, 5, 6], [4, 5, 6, 7]]


def test_c10_a_marker_does_not_wait_for_an_empty_batch(offsets: Offsets) -> None:
    """Kafka keeps the batch for its producer's last sequence, and the marker for the batch; a table has no batches."""
    assert offsets["empty-batch"][:3] == [[2], [2, 3], [3, 4, 5]]


def test_c10_a_marker_in_a_later_segment_commits(offsets: Offsets) -> None:
    assert offsets["commit-in-next-segment"][0] == [0, 1]


def test_c10_a_marker_in_a_later_segment_aborts(offsets: Offsets) -> None:
    assert offsets["abort-in-next-segment"][:3] == [[1], [1, 2], [2, 3]]


def test_c10_transactions_over_segments(offsets: Offsets) -> None:
    undecided, decided, waiting, gone, _ = offsets["over-segments"]
    assert undecided == [0, 1, 2, 3, 4, 5]
    assert decided == [2, 3, 8, 9, 12, 13, 14, 15, 18]
    assert waiting == [*decided, 19]
    assert gone == [2, 3, 8, 9, 13, 14, 15, 19, 20]


def test_c10_aborts_of_several_producers(offsets: Offsets) -> None:
    first, _, third, *_ = offsets["several-aborts"]
    assert first == [0, 2, 4, 5, 6, 7, 10, 13, 15, 16, 17, 18, 19]
    assert third == [0, 2, 4, 5, 6, 7, 13, 15, 17, 18, 19, 20, 21]


def test_c10_a_key_like_that_of_a_marker_is_a_key(offsets: Offsets) -> None:
    assert offsets["keys-like-markers"][0] == [0, 1, 2, 3]


def test_c10_nothing_at_or_past_an_undecided_transaction_is_cleaned(offsets: Offsets) -> None:
    assert offsets["undecided"] == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [3, 4, 5], [3, 4, 5, 6], [3, 4, 6, 7]]


def test_c6_keys_of_a_mebibyte(offsets: Offsets) -> None:
    assert offsets["large"][0] == [1, 2]
