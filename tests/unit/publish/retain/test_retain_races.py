"""Lane retain beside appenders and other plans: the plan is checked on the very snapshot that it is committed on."""

import threading

import pytest
from pyiceberg.exceptions import CommitFailedException

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.publish.attempts import Publication
from firnlake.table import records
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready
from tests.support.publishing import publish, retain
from tests.support.retained import DELETE, HOUR, aged, change, land, plans

MOST_APPENDS = 30
"""An appender that never pauses may win for minutes."""


class TestConflicts:
    """The plan is checked on the very snapshot that it is committed on."""

    @staticmethod
    def refused(lake: Lake, plan: Plan, text: str) -> None:
        before = lake.table(TABLE).metadata_location
        with pytest.raises(ConflictError, match=text) as caught:
            retain(lake, plan)
        assert "plan again" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert lake.table(TABLE).metadata_location == before

    @pytest.mark.parametrize("offset", [0, 3])
    def test_c19_an_older_record_that_landed_since_would_come_to_light(
        self, lake: Lake, plan: Plan, offset: int
    ) -> None:
        append(lake, [aged(offset, 5 * HOUR)])
        self.refused(lake, plan, r"drops all records up to offset 3, but segment orders-0 L0 \[\d\.\.\d\] .* landed")

    def test_c19_a_young_older_record_keeps_what_it_overlaps(self, lake: Lake, plan: Plan) -> None:
        append(lake, [aged(1)])
        self.refused(lake, plan, r"has to stay now \(.*it overlaps")
        assert plans(lake) == []

    def test_c4_an_input_that_is_the_log_end_now_stays(self, lake: Lake, plan: Plan) -> None:
        lake.table(TABLE).delete("offset > 3")
        self.refused(lake, plan, r"has to stay now \(.* it holds the log end")

    def test_c21_a_retention_that_is_longer_now_is_heeded(self, lake: Lake, plan: Plan) -> None:
        change(lake, retention_ms=str(9 * HOUR))
        self.refused(lake, plan, r"has to stay now \(.*retention\.ms = 9h")

    def test_c19_a_policy_that_does_not_delete_any_more_is_heeded(self, lake: Lake, plan: Plan) -> None:
        change(lake, cleanup_policy="compact")
        self.refused(lake, plan, r"has to stay now \(the policy of topic orders is compact\)")

    def test_c22_an_input_that_is_gone(self, lake: Lake, plan: Plan) -> None:
        lake.table(TABLE).delete("offset < 2")
        self.refused(lake, plan, "are no longer live in lake.records: 1 of 2")

    def test_c26_another_table_of_the_same_name_is_refused(self, lake: Lake, plan: Plan) -> None:
        lake.catalog.drop_table(TABLE)
        records.create(lake, TABLE, DELETE)
        append(lake, [aged(0)])
        with pytest.raises(RefusedError, match=r"was made for table lake\.records with UUID"):
            retain(lake, plan)

    def test_c26_a_plan_of_another_lane_is_refused(self, lake: Lake, plan: Plan) -> None:
        change(lake, cleanup_policy="compact")
        full = only_plan(lake)
        with pytest.raises(
            RefusedError, match=r"is of lane full; allowed for this step: retain \(firn retain runs lane retain"
        ):
            retain(lake, full)
        with pytest.raises(RefusedError, match="is of lane retain; allowed for this step: erase, convert, merge, "):
            lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == []


class TestBesideOthers:
    """C22: appenders and other plans."""

    def test_c22_of_overlapping_plans_one_wins_and_the_other_replans(self, lake: Lake, plan: Plan) -> None:
        change(lake, cleanup_policy="compact,delete")
        full = ready(lake, only_plan(lake), [aged(offset) for offset in range(8)], Fates())
        found = lakes.together(
            lambda: publish(Lake.embedded(lake.home), full.identifier), lambda: retain(Lake.embedded(lake.home), plan)
        )
        assert sorted(type(one).__name__ for one in found) == ["ConflictError", "Publication"]
        dropped = isinstance(found[1], Publication)
        assert lakes.offsets(lake) == list(range(4 if dropped else 0, 8))

    def test_c22_two_clocks_make_two_plans_and_one_wins(self, lake: Lake, plan: Plan) -> None:
        (later,) = plans(lake, NOW + 1)
        assert later.id != plan.id
        found = lakes.together(*[lambda one=one: retain(Lake.embedded(lake.home), one) for one in (plan, later)])
        assert sorted(type(one).__name__ for one in found) == ["ConflictError", "Publication"]
        assert lakes.offsets(lake) == [4, 5, 6, 7]

    @pytest.mark.usefixtures("table")
    def test_c22_appending_while_dropping_loses_nothing(self, lake: Lake) -> None:
        for partition in range(2):
            land(lake, 2 * HOUR, 0, partition=partition)
        made = plans(lake)
        dropped_all = threading.Event()

        def drop_all() -> int:
            own = Lake.embedded(lake.home)
            try:
                return sum(retain(own, one).attempts for one in made)
            finally:
                dropped_all.set()

        def appending() -> int:
            own, number = Lake.embedded(lake.home), 0
            while number < 2 or (number < MOST_APPENDS and not dropped_all.is_set()):
                try:
                    own.table(TABLE).append(lakes.stored([aged(100 + number, partition=number % 2)]))
                except CommitFailedException:
                    continue
                number += 1
            return number

        attempts, appended = lakes.together(drop_all, appending)
        assert isinstance(attempts, int), attempts
        assert isinstance(appended, int), appended
        assert lakes.offsets(lake) == sorted([2, 3] * 2 + list(range(100, 100 + appended)))
