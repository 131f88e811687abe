"""C10 on what Firn does not make: control records of other kinds."""

import struct
from typing import Final

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
