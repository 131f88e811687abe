"""Random faults against real cleanings (C1 to C5, C22, C24 to C26), and proof that the model notices what is wrong."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pipeline.lake import Lake
from tests.faults.harness.model import Looks, Model, view
from tests.faults.harness.reader import Reader, reading
from tests.faults.harness.trial import trial
from tests.faults.harness.workplace import Workplace
from tests.support.topics import Record, updates

SEEDS = (*range(1, 12), 51)
"""Always the same, so that a red build says something about the change; `make faults` tries others. The last one has
found something: data of a stage whose metadata orphan removal took away."""
LANDED = updates("a=1", "b=1", "a=2", "b=")


@pytest.fixture(scope="module")
def reader(lake: Lake) -> Iterator[Reader]:
    with reading(lake) as one:
        yield one


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Workplace:
    """Children clean by themselves; Spark is started by the first seed that another tool gets in the way of."""
    return Workplace(partial(request.getfixturevalue, "spark"))


@pytest.mark.parametrize("seed", SEEDS)
def test_c25_whatever_goes_wrong_nothing_is_lost_and_nothing_is_left(
    lake: Lake, place: Workplace, reader: Reader, tmp_path: Path, seed: int
) -> None:
    done = trial(seed, lake, place, reader, tmp_path)
    assert done.violations == [], done.faults


class TestModel:
    """What the trials rely on to notice."""

    @pytest.fixture
    def model(self) -> Model:
        model = Model()
        model.land([*LANDED, Record(4, None, b"no key"), Record(5, b"c", b"1")])
        return model

    def test_a_cleaned_view_is_right(self, model: Model) -> None:
        seen = [LANDED[2], LANDED[3], Record(5, b"c", b"1")]
        assert model.violations(seen, [(0, 4)]) == []
        assert model.unsettled(seen, [(0, 4)]) == []

    @pytest.mark.parametrize(
        ("seen", "quarantined", "said"),
        [
            ([LANDED[3], Record(5, b"c", b"1")], [(0, 4)], "C3: the newest record of (0, b'a')"),
            ([LANDED[2]._replace(value=b"x"), Record(5, b"c", b"1")], [(0, 4)], "C1: (0, 2)"),
            ([LANDED[2], LANDED[2], Record(5, b"c", b"1")], [(0, 4)], "(0, 2) is seen twice"),
            ([LANDED[2]], [(0, 4)], "C4: the log end (0, 5)"),
            ([LANDED[2], Record(5, b"c", b"1")], [], "C5: (0, 4)"),
        ],
    )
    def test_what_is_wrong_is_noticed(
        self, model: Model, seen: list[Record], quarantined: list[tuple[int, int]], said: str
    ) -> None:
        assert any(problem.startswith(said) for problem in model.violations(seen, quarantined))

    def test_what_is_left_over_is_noticed(self, model: Model) -> None:
        seen = [LANDED[0], LANDED[2], Record(4, None, b"no key"), Record(5, b"c", b"1")]
        assert model.unsettled(seen, [(0, 4), (0, 4)]) == [
            "C16: (0, 0) is superseded and still there",
            "C16: (0, 4) is superseded and still there",
            "C5: (0, 4) is in quarantine 2 times",
            "C5: (0, 4) is in quarantine and in the table",
        ]

    @pytest.mark.parametrize(
        ("views", "said"),
        [
            ([LANDED[:3], LANDED[:2]], ["(0, b'a') was at offset 2 and is at 0"]),
            ([LANDED[:3], LANDED[1:2]], ["(0, b'a') was at offset 2 and is gone"]),
            (
                [LANDED, LANDED[:1], LANDED[:2]],
                ["(0, b'a') was at offset 2 and is at 0", "(0, b'b') was at offset 3 and is at 1"],
            ),
            ([LANDED, LANDED[2:3]], []),
        ],
    )
    def test_a_reader_that_sees_a_key_go_back_is_heard(self, views: list[list[Record]], said: list[str]) -> None:
        looks = Looks()
        for seen in views:
            looks.see(view(seen))
        assert looks.violations() == said
