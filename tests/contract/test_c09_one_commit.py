"""C9: main and the branch of removed tombstones move with one commit, so no reader ever sees a tombstone on neither."""

from tests.support.scenario import Scenario


def test_a_tombstone_leaves_main_and_is_remembered_in_one_commit(scenario: Scenario) -> None:
    scenario.answer("land a=1 b=1 a= c=1")
    scenario.answer("full")
    before = scenario.loaded().metadata_location
    scenario.answer("at 1d")
    scenario.answer("full!")
    assert scenario.loaded().metadata.metadata_log[-1].metadata_file == before
    assert (scenario.answer("read"), scenario.answer("read removed")) == (["b=1@1 c=1@3"], ["a=@2+1d"])
