"""C25: stages that nobody can publish any more are discarded, all others are kept."""

import json

import pytest

from firnlake import clock
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import sweep
from firnlake.job.documents import JobDocuments
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.job.stale import SETTLED_MS, End, found_stages
from infra.foreign.files import files_under
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, ready, row
from tests.support.stages import aged, data_of, document, documents_of


class TestSweeping:
    """Stages that can no longer be published are discarded, all others are kept."""

    def test_a_young_stage_with_live_inputs_is_kept(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        swept = sweep(lake, TABLE)
        assert (swept.discarded, swept.kept) == ({}, {})
        assert stages_of(lake, TABLE) == [plan.stage]

    def test_a_runs_own_stages_go_when_it_is_over(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        assert sweep(lake, TABLE, [plan.id]).discarded == {plan.stage: "its run is over"}
        assert stages_of(lake, TABLE) == []

    def test_a_stage_whose_input_is_gone_goes(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        lake.table(TABLE).delete("offset = 0")
        (reason,) = sweep(lake, TABLE).discarded.values()
        assert reason == f"its input {plan.inputs[0].path} is no longer live"

    def test_a_stage_older_than_the_policy_allows_goes(self, lake: Lake, plan: Plan) -> None:
        aged(documents_of(lakes.opened(lake, plan)), 86_400_001)
        (reason,) = sweep(lake, TABLE).discarded.values()
        assert reason.endswith("; job.max.age.ms allows 1d")

    def test_its_age_is_that_of_its_first_document(self, lake: Lake, plan: Plan) -> None:
        """Repeated attempts do not keep a stage alive."""
        stage = lakes.opened(lake, plan)
        aged(documents_of(stage), 86_400_001)
        ready(lake, plan, [row(1)], Fates(superseded=1))
        assert list(sweep(lake, TABLE).discarded) == [plan.stage]

    def test_the_age_limit_is_the_tables_own(self, lake: Lake, plan: Plan) -> None:
        aged(documents_of(lakes.opened(lake, plan)), 61_000)
        assert sweep(lake, TABLE).discarded == {}
        lake.set_properties(TABLE, {"firn.job.max.age.ms": "60000"})
        assert list(sweep(lake, TABLE).discarded) == [plan.stage]

    def test_c21_a_stage_of_just_that_age_is_kept(self, lake: Lake, plan: Plan) -> None:
        written_ms = lakes.opened(lake, plan).documents.written_ms
        assert written_ms is not None
        ends = {age: found_stages(lake, TABLE, (), written_ms + age)[0].end for age in (86_400_000, 86_400_001)}
        assert ends == {86_400_000: End.STAY, 86_400_001: End.DISCARD}

    def test_c20_one_broken_stage_does_not_stop_the_sweep(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        broken = JobDocuments.of(lake.table(TABLE), "0" * 16)
        broken.write("plans", json.dumps([{"id": "of another version"}]))
        swept = sweep(lake, TABLE, [plan.id])
        assert list(swept.discarded) == [plan.stage]
        assert "not readable" in swept.kept[f"{TABLE}/{broken.job_id}"]
        assert stages_of(lake, TABLE) == [f"{TABLE}/{broken.job_id}"]

    def test_c25_what_a_process_left_that_died_while_it_opened_the_stage_goes_after_a_while(
        self, lake: Lake, plan: Plan
    ) -> None:
        stage = lakes.opened(lake, plan)
        path = document(stage, "plans")
        path.write_bytes(path.read_bytes()[:10])
        assert sweep(lake, TABLE).discarded == {}, "it may be written right now"
        aged(documents_of(stage), SETTLED_MS + 1000)
        assert "its plans are gone" in sweep(lake, TABLE).discarded[plan.stage]
        assert not documents_of(stage).exists()
        assert lakes.offsets(lake) == [0, 1]

    def test_c25_what_another_tools_orphan_removal_has_left_goes(self, lake: Lake, plan: Plan) -> None:
        """It may take what only Firn knows of, the plans before the rest."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        before = lakes.snapshot(lake)
        document(stage, "plans").unlink()
        assert "its plans are gone" in sweep(lake, TABLE).discarded[plan.stage]
        assert files_under(data_of(stage)) == files_under(documents_of(stage)) == set()
        assert lakes.snapshot(lake) != before, "what was about to be committed on it is refused"
        assert lakes.offsets(lake) == [0, 1]

    def test_a_catalog_that_is_gone_is_said(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        lake.catalog.drop_table(TABLE)
        with pytest.raises(FirnError, match="does not exist"):
            sweep(lake, TABLE)


def test_ages_are_not_measured_where_the_machines_clock_is_behind(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.opened(lake, plan)
    monkeypatch.setattr(clock, "now_ms", lambda: 0)
    assert sweep(lake, TABLE).discarded == {}
