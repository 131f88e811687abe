"""Record counts add up, and come back from a snapshot summary (C24)."""

import pytest

from firnlake.errors import RefusedError
from firnlake.table.published_plans import RecordCounts

COUNTS = RecordCounts(
    records_in=10, records_out=4, superseded=3, tombstones_removed=1, expired=1, quarantined=1,
    bytes_in=100, bytes_out=50, segments_in=3, segments_out=1,
)  # fmt: skip


def test_c24_counts_that_add_up_pass() -> None:
    assert COUNTS.check("stage x") is COUNTS


@pytest.mark.parametrize(
    "name", ["records_in", "records_out", "superseded", "tombstones_removed", "expired", "quarantined"]
)
def test_c24_one_record_more_anywhere_is_refused(name: str) -> None:
    wrong = COUNTS.model_copy(update={name: getattr(COUNTS, name) + 1})
    with pytest.raises(
        RefusedError, match=r"stage x: records in = 1[01], but .* = 1[01]; allowed: records in = out [+]"
    ):
        wrong.check("stage x")


def test_c24_every_figure_is_in_the_summary() -> None:
    summary = COUNTS.summary()
    assert summary["firn.tombstones-removed"] == "1"
    figures = COUNTS.model_dump()
    assert summary == {f"firn.{name.replace('_', '-')}": str(figure) for name, figure in figures.items()}
    assert RecordCounts.of_summary(summary) == COUNTS


def test_c24_the_total_of_plans_is_the_sum_of_every_figure() -> None:
    assert RecordCounts.total([COUNTS, COUNTS]).model_dump() == {
        name: 2 * figure for name, figure in COUNTS.model_dump().items()
    }
