"""The settings of tables in Airflow, and the lease of a run; neither needs Airflow to be read."""

import os
from pathlib import Path

import pytest

from firnlake.airflow.configuration import read_tables
from firnlake.job import lease


class TestSettings:
    def test_defaults_hold_for_every_table_that_does_not_say_otherwise(self, tmp_path: Path) -> None:
        path = tmp_path / "firn.toml"
        path.write_text('[defaults]\nretries = 1\npool = "a"\n[tables."x.y"]\n[tables."x.z"]\npool = "b"\n')
        (one, other), refused = read_tables(path)
        assert refused == []
        assert (one.name, one.dag_id, one.namespace, one.pool, one.retries) == ("x.y", "firn__x__y", "x", "a", 1)
        assert (other.name, other.pool, other.retries) == ("x.z", "b", 1)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('[tables."x.y"]\npoll = "a"', "table x.y: poll is not a setting; allowed: schedule, watched,"),
            ('[tables."x.y"]\nretries = -1', "table x.y: retries is -1; allowed: greater than or equal to 0"),
            ('[tables."x.y"]\nengine = "flink"', "table x.y: engine is 'flink'; allowed: 'spark', 'local' or 'auto'"),
            ('[tables."x.y"]\nwatched = "maybe"', "table x.y: watched is 'maybe'; allowed: a valid boolean"),
            ('[tables."x.y".spark]\n"spark.master" = "yarn"', "other than spark.master"),
            ('[tables."x.y"]\nname = "x"', "table x.y: "),
            ('[tables]\n"x.y" = 3', "table x.y: "),
            ('[tables."x.y"]\nnotify = [{ to = "me" }]', "table x.y: notify.0.class is"),
        ],
    )
    def test_c26_what_is_wrong_is_named(self, tmp_path: Path, text: str, said: str) -> None:
        path = tmp_path / "firn.toml"
        path.write_text(f'{text}\n[tables."x.z"]\n')
        (other,), (refused,) = read_tables(path)
        assert said in refused
        assert other.name == "x.z"

    def test_c26_another_section_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "firn.toml"
        path.write_text('[table."x.y"]')
        with pytest.raises(ValueError, match="table is not a section; allowed: defaults, tables"):
            read_tables(path)


class TestLease:
    def test_one_run_has_a_table_until_it_gives_it_back(self, tmp_path: Path) -> None:
        working = {"first"}
        assert lease.take(tmp_path, "x.y", "first", working.__contains__) is None
        assert lease.take(tmp_path, "x.y", "second", working.__contains__) == "first"
        assert lease.take(tmp_path, "x.z", "second", working.__contains__) is None
        lease.give_back(tmp_path, "x.y", "first")
        assert lease.take(tmp_path, "x.y", "second", working.__contains__) is None

    def test_a_run_may_take_its_own_again(self, tmp_path: Path) -> None:
        assert lease.take(tmp_path, "x.y", "first", lambda _: True) is None
        assert lease.take(tmp_path, "x.y", "first", lambda _: True) is None

    def test_a_run_that_ended_has_lost_it(self, tmp_path: Path) -> None:
        assert lease.take(tmp_path, "x.y", "killed", lambda _: True) is None
        assert lease.take(tmp_path, "x.y", "next", lambda _: False) is None
        lease.give_back(tmp_path, "x.y", "killed")
        assert lease.take(tmp_path, "x.y", "third", lambda _: True) == "next"

    def test_who_has_it_and_since_when_is_told_without_taking_it(self, tmp_path: Path) -> None:
        assert lease.holder(tmp_path, "x.y") is None
        lease.take(tmp_path, "x.y", "first", lambda _: True)
        os.utime(tmp_path / "x.y.lease", (1_700_000_000, 1_700_000_000))
        assert lease.holder(tmp_path, "x.y") == lease.Holder("first", 1_700_000_000_000)
        lease.take(tmp_path, "x.y", "second", lambda _: True)
        assert lease.holder(tmp_path, "x.y") == lease.Holder("first", 1_700_000_000_000)
        lease.give_back(tmp_path, "x.y", "first")
        assert lease.holder(tmp_path, "x.y") is None
