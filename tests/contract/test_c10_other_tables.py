"""C10 on what Firn did not make: control records of other kinds, and a table whose columns were added later."""

import struct
from typing import Final

from pyiceberg.types import BooleanType, IntegerType, LongType

from tests.support.log_segments import Entry, batch, segment
from tests.support.scenario import Scenario

HELD: Final = ["orders-0: waiting, dirty ratio 0", "held back: transaction of producer 1 is undecided from offset 0 on"]


def test_control_records_of_other_kinds_decide_nothing(scenario: Scenario) -> None:
    scenario.answer("log 1>a=1")
    assert scenario.answer("status") == HELD
    leader_change = Entry(1, struct.pack(">hh", 0, 2), b"")
    path = segment(scenario.folder / "other" / "orders-0", batch(leader_change, producer=(1, 0), control=True))
    scenario.table.land(path)
    assert scenario.answer("status")[-1] == HELD[-1]


def test_older_files_without_the_columns_hold_no_transactions(scenario: Scenario) -> None:
    scenario.answer("land a=0")
    with scenario.loaded().update_schema() as update:
        update.add_column("is_control", BooleanType())
        update.add_column("is_transactional", BooleanType())
        update.add_column("producer_id", LongType())
        update.add_column("producer_epoch", IntegerType())
    scenario.answer("log 1>a=1")
    assert scenario.answer("full!") == ["1 to 1 segments, 1 to 1 records"]
    assert scenario.answer("levels") == ["L3[0-0] L0[1-1]"]
