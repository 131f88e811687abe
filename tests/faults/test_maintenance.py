"""C29: others change a table while it is maintained; every kept snapshot is read afterwards. Under a second a seed."""

from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from tests.faults.harness.maintenance import trial

pytestmark = pytest.mark.nightly

SEEDS = range(1, 9)
"""Always the same; `make faults-maintenance` tries others."""


@pytest.mark.parametrize("part", range(4))
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_c29_whatever_goes_wrong_no_kept_file_is_lost_and_nothing_is_left(
    lake: Lake, tmp_path: Path, part: int
) -> None:
    done = [trial(seed, lake, tmp_path) for seed in SEEDS[part::4]]
    assert {one.seed: one.violations for one in done if one.violations} == {}
    assert any(one.faults for one in done)
