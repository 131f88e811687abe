"""Goals of the lanes that hide: figures that programs of their own measured."""

from pathlib import Path

import pytest

from infra.bench import goals
from infra.bench.results import (
    FRESHNESS,
    LIGHTEN_TIME,
    MASK_AMPLIFICATION,
    MASK_SCAN,
    MASK_TIME,
    MASK_WRITES,
    Elsewhere,
    Ratio,
    Report,
)

LIMITS = {
    MASK_WRITES: 0.001,
    MASK_TIME: 0.5,
    MASK_SCAN: 1.3,
    LIGHTEN_TIME: 0.2,
    MASK_AMPLIFICATION: 1.3,
    FRESHNESS: 60,
}


def met(elsewhere: Elsewhere) -> list[bool]:
    report = Report({}, 1.0, quick=False, elsewhere=elsewhere)
    return [one.met for one in goals.findings(report) if one.met is not None]


@pytest.mark.parametrize(("name", "limit"), LIMITS.items())
def test_a_ratio_meets_its_goal_or_misses_it(name: str, limit: float) -> None:
    assert met(Elsewhere(ratios={name: Ratio(limit, "a case", "a figure")})) == [True]
    assert met(Elsewhere(ratios={name: Ratio(limit * 1.01, "a case", "a figure")})) == [False]


def test_ratios_are_kept_beside_what_was_measured_before(tmp_path: Path) -> None:
    known = Elsewhere(seconds={"make demo": 70.0}, ratios={FRESHNESS: Ratio(14.3, "a case", "a figure")})
    known.write(tmp_path)
    assert Elsewhere.read(tmp_path) == known
    assert Elsewhere.of({"memory": {}, "seconds": {"make demo": 70.0}}) == Elsewhere(seconds=known.seconds)
