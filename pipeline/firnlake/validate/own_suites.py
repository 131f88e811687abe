"""Run the suites that a table names in ``firn.validate.suites`` on the records of each result, before publishing it."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.table.policies import Policies
from firnlake.validate.cases import Case, JudgedRecords
from firnlake_expectations.promises.promise import POSITION_DELETING
from firnlake_expectations.tables import AFTER

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from great_expectations import ExpectationSuite

    from firnlake_expectations.claim import Finding
    from firnlake_expectations.wording import Shown


_FUNCTION: Final = re.compile(r"[\w.]+:\w+", re.ASCII)
_GIB: Final = 1 << 30


def own_findings(
    target: Table, records: JudgedRecords, cases: Sequence[Case], samples: "Shown", reports: "Path"
) -> "Mapping[str, tuple[Finding, ...]]":
    """The findings of the suites of table ``target``, by plan id; empty if it names none.

    One batch holds all records that a plan has written to the topic. Raises RefusedError if a suite can't be loaded.
    """
    identifier = ".".join(target.name())
    policy = Policies.parse(identifier, target.properties).default
    if policy.validate_suites == "none":
        return {}
    from firnlake_expectations.claim import Finding
    from firnlake_expectations.own_suites import findings_of_suites

    suites = [_suite(target, identifier, name.strip()) for name in policy.validate_suites.split(",")]
    most = _limit()
    found: dict[str, tuple[Finding, ...]] = {}
    for case in cases:
        written = [file for file in case.files if file.side == AFTER]
        size = sum(file.bytes for file in written)
        if case.claim.lane in POSITION_DELETING or not case.claim.records_out:
            continue
        if size > most:
            observed = f"Not judged: {size:,} bytes; FIRN_SUITES_BYTES is {most:,}."
            sentence = "The table's suites are run on all records of the result."
            skips = policy.validate_suites_large == "skip"
            found[case.claim.plan_id] = (Finding("firn.validate.suites", sentence, skips, observed),)
            continue
        frame, offset = _frame(records, case), records.reading.offset
        found[case.claim.plan_id] = findings_of_suites(suites, frame, identifier, offset, samples, reports)
    return found


def _frame(records: JudgedRecords, case: Case) -> "pd.DataFrame":
    """The records that the plan of ``case`` has written to the topic; quarantined ones and removed tombstones are
    elsewhere, at levels below 0."""
    read = [batch for part in records.parts([case]) if part.side == AFTER for batch in part.read(None)]
    whole = pa.Table.from_batches(read, records.schema)
    level = whole.column(records.reading.level)
    return whole.filter(pc.fill_null(pc.greater_equal(level, 0), fill_value=True)).to_pandas()


def _suite(target: Table, identifier: str, name: str) -> "ExpectationSuite":
    from firnlake_expectations.own_suites import stored_suite, suite_from

    try:
        if not _FUNCTION.fullmatch(name):
            with target.io.new_input(name).open() as file:
                return stored_suite(file.read().decode())
        # Whoever may write a table's properties must not choose what this machine imports.
        allowed = [one.strip() for one in os.environ.get("FIRN_SUITE_MODULES", "").split(",")]
        return suite_from(name, identifier, allowed)
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"table {identifier}: property firn.validate.suites names {name!r}, but {error}; allowed: the location of "
            "a suite in Great Expectations' JSON, or module:function of a module in FIRN_SUITE_MODULES, with at least "
            "one expectation"
        ) from error


def _limit() -> int:
    text = os.environ.get("FIRN_SUITES_BYTES", str(_GIB))
    if text.isascii() and text.isdigit():
        return int(text)
    raise RefusedError(f"FIRN_SUITES_BYTES is {text!r}; allowed: a whole number of bytes")
