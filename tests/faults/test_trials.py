"""Random faults against real cleanings (C1 to C5, C22, C24 to C26), and proof that the model notices what is wrong."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table import Table

from firnlake.iceberg.branches import QUARANTINE, on_branch
from firnlake.iceberg.catalog import Lake
from infra.foreign.files import on_disk
from tests.faults.harness.model import Branches, Looks, Model, lost_files, unbalanced, view
from tests.faults.harness.reader import Reader, reading
from tests.faults.harness.trial import trial
from tests.faults.harness.workplace import Workplace
from tests.support.topics import Record, Topic, updates

SEEDS = (*range(1, 6), 33)
"""Always the same, so that a red build says something about the change; `make faults` tries others. In the
last one, a process is killed while it writes the marks of a large plan."""
LANDED = updates("a=1", "b=1", "a=2", "b=")
NO_KEY = Record(4, None, b"no key")
END = Record(5, b"c", b"1")


@pytest.fixture(scope="module")
def reader(lake: Lake) -> Iterator[Reader]:
    with reading(lake) as one:
        yield one


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Workplace:
    """Children clean by themselves; Spark is started by the first seed that another tool gets in the way of."""
    return Workplace(partial(request.getfixturevalue, "spark"))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", SEEDS)
def test_c25_whatever_goes_wrong_nothing_is_lost_and_nothing_is_left(
    lake: Lake, place: Workplace, reader: Reader, tmp_path: Path, seed: int
) -> None:
    done = trial(seed, lake, place, reader, tmp_path)
    assert done.violations == [], done.faults


class TestModel:
    """Checks that the trials rely on."""

    @pytest.fixture
    def model(self) -> Model:
        model = Model()
        model.land([*LANDED, NO_KEY, END])
        return model

    def test_a_cleaned_view_is_right(self, model: Model) -> None:
        seen = Branches([LANDED[2], END], [NO_KEY], [LANDED[3]])
        assert model.violations(seen) == []
        assert model.unsettled(seen) == []

    @pytest.mark.parametrize(
        ("seen", "said"),
        [
            (Branches([LANDED[3], END], [NO_KEY]), "C3: the newest record of (0, b'a')"),
            (Branches([LANDED[2]._replace(value=b"x"), END], [NO_KEY], [LANDED[3]]), "C1: (0, 2)"),
            (Branches([LANDED[2], LANDED[2], END], [NO_KEY], [LANDED[3]]), "(0, 2) is seen 2 times"),
            (Branches([LANDED[2]], [NO_KEY], [LANDED[3]]), "C4: the log end (0, 5)"),
            (Branches([LANDED[2], END], [], [LANDED[3]]), "C5: (0, 4) without a key is neither"),
            (Branches([LANDED[2], END], [NO_KEY, NO_KEY], [LANDED[3]]), "firn_quarantine: (0, 4) is seen 2 times"),
            (Branches([LANDED[2], END, NO_KEY], [NO_KEY], [LANDED[3]]), "C5: (0, 4) is in quarantine and in the table"),
            (Branches([LANDED[2], END], [NO_KEY._replace(value=b"x")], [LANDED[3]]), "C1: firn_quarantine: (0, 4)"),
            (Branches([LANDED[2], END], [NO_KEY, LANDED[0]], [LANDED[3]]), "C5: (0, 0) has a key"),
            (Branches([LANDED[2], END], [NO_KEY]), "C9: the newest record of (0, b'b'), (0, 3), is a tombstone"),
            (Branches([LANDED[2], END], [NO_KEY], [LANDED[3]] * 2), "firn_tombstones: (0, 3) is seen 2 times"),
            (Branches([*LANDED[2:], END], [NO_KEY], [LANDED[3]]), "C9: (0, 3) is a removed tombstone and in the table"),
            (Branches([LANDED[2], END], [NO_KEY], [LANDED[3], LANDED[0]]), "C9: (0, 0) is no tombstone"),
        ],
    )
    def test_what_is_wrong_is_noticed(self, model: Model, seen: Branches, said: str) -> None:
        assert any(problem.startswith(said) for problem in model.violations(seen))

    def test_what_is_left_over_is_noticed(self, model: Model) -> None:
        seen = Branches([LANDED[0], LANDED[2], NO_KEY, END], [NO_KEY], [LANDED[3]])
        assert model.unsettled(seen) == [
            "C16: (0, 0) is superseded and still there",
            "C16: (0, 4) is superseded and still there",
        ]

    def test_c30_a_requested_key_may_go_and_no_older_value_may_show_up(self, model: Model) -> None:
        model.request(b"a", {0: 4})
        seen = Branches([END], [NO_KEY], [LANDED[3]])
        assert model.violations(seen) == model.unsettled(seen) == []
        (problem,) = model.violations(Branches([LANDED[0], END], [NO_KEY], [LANDED[3]]))
        assert problem.startswith("C30: (0, 0) is there though 2")
        assert model.unsettled(Branches([LANDED[2], END], [NO_KEY], [LANDED[3]])) == [
            "C30: (0, 2) is to be erased and still there"
        ]

    def test_c30_a_requested_tombstone_may_not_stay_among_the_removed(self, model: Model) -> None:
        model.request(b"b", {0: 4})
        assert model.unsettled(Branches([LANDED[2], END], [NO_KEY], [LANDED[3]])) == [
            "C30: (0, 3) is to be erased and still there"
        ]

    def test_c30_what_landed_after_the_request_is_lost_if_it_goes(self, model: Model) -> None:
        model.request(b"a", {0: 2})
        (problem,) = model.violations(Branches([END], [NO_KEY], [LANDED[3]]))
        assert problem.startswith("C3: the newest record of (0, b'a')")

    def test_c4_what_is_before_a_deleted_log_end_may_stay(self, model: Model) -> None:
        model.delete(b"c")
        seen = Branches([LANDED[2], NO_KEY], [], [LANDED[3]])
        assert model.violations(seen) == []
        assert model.unsettled(seen) == []

    def test_c24_counts_that_do_not_say_what_went_to_a_branch_are_noticed(self, topic: Topic) -> None:
        topic.land(LANDED, [NO_KEY, END]).clean("full", force=True)
        table = topic.lake.table(topic.table)
        assert unbalanced(table) == []
        empty = table.metadata.model_copy(
            update={"refs": {name: ref for name, ref in table.metadata.refs.items() if name != QUARANTINE}}
        )
        (problem,) = unbalanced(Table(table.name(), empty, table.metadata_location, table.io, table.catalog))
        assert problem.startswith("C24: ")

    def test_a_file_that_is_gone_is_noticed(self, topic: Topic) -> None:
        topic.land(LANDED, [NO_KEY, END]).clean("full", force=True)
        table = topic.lake.table(topic.table)
        assert lost_files(table) == []
        (path,) = on_branch(table, QUARANTINE).scan().plan_files()
        on_disk(path.file.file_path).unlink()
        assert lost_files(table) == [f"{path.file.file_path} is gone, and a snapshot refers to it"]

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
