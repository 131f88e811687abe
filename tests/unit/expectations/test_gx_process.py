"""Great Expectations in a process beside this one says what it says in this one; without that process all goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firnlake_expectations import gx_process
from firnlake_expectations.findings import rows
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import AFTER, BEFORE
from infra.environment import CHECKOUT
from tests.support.judged import CLAIM, INPUTS, KAFKAS, OUTPUTS, SCHEMA, B, part, table, without

if TYPE_CHECKING:
    from firnlake_expectations.findings import Row

# A fresh interpreter, without Great Expectations: where it is imported already nobody is started.
_ASKING = """
import json, sys
from firnlake_expectations import gx_process
from firnlake_expectations.findings import Row
from firnlake_expectations.promises.table import PROMISES
from firnlake_expectations.claim import Sample

told = json.loads(sys.stdin.read())
promises = {(promise.name, promise.number): promise for promise in PROMISES}
rows = [
    Row(
        line["plan"], promises[line["promise"], line["number"]], line["sentence"],
        line["checked"], line["broken"], line["observed"],
        tuple(Sample(**sample) for sample in line["samples"]),
    )
    for line in told
]
gx_process.start()
BREAK
results = [gx_process.validated("clean", [rows], shared=shared) for shared in (False, True)]
print(json.dumps([results, "great_expectations" in sys.modules]))
"""


@pytest.fixture
def lines() -> list[Row]:
    sound, broken = (
        rows(
            replace(CLAIM, plan_id=name),
            judge([part(BEFORE, table(INPUTS)), part(AFTER, table(outputs))], SCHEMA, [CLAIM], KAFKAS)[0],
        )
        for name, outputs in (("sound", OUTPUTS), ("broken", without(B)))
    )
    return [*sound, *broken]


def _without_moment(result: dict[str, Any]) -> dict[str, Any]:
    version = result["meta"]["great_expectations_version"]
    return json.loads(json.dumps({**result, "meta": version}))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("meanwhile", "imported"),
    [("", False), ("gx_process._running[0].process.kill(); gx_process._running[0].process.wait()", True)],
    ids=["it lives", "it was killed"],
)
def test_the_process_beside_finds_what_this_one_finds(lines: list[Row], meanwhile: str, imported: bool) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _ASKING.replace("BREAK", meanwhile)],
        input=json.dumps([row.to_dict() for row in lines]),
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    results, here = json.loads(asked.stdout)
    assert here is imported
    own = [gx_process.validated("clean", [lines], shared=shared) for shared in (False, True)]
    assert [_without_moment(one) for one in results] == [_without_moment(one) for one in own]
    assert [one["success"] for one in results] == [False, False]
