"""Run the suites that a table names in ``firn.validate.suites`` on the records of each result, before publishing it."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import UUIDType

from firnlake.engine.engine import Engine
from firnlake.engine.spark import SparkEngine
from firnlake.errors import RefusedError, UnavailableError
from firnlake.table.policy import Policies
from firnlake.validate.cases import JudgedRecords
from firnlake_expectations.case import AFTER, Case

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from great_expectations import ExpectationSuite
    from pyspark.sql import DataFrame

    from firnlake.engine.worker import Batches
    from firnlake_expectations.case import Finding
    from firnlake_expectations.wording import Shown


_FUNCTION: Final = re.compile(r"[\w.]+:\w+", re.ASCII)
_GIB: Final = 1 << 30


def own_findings(
    target: Table, records: JudgedRecords, cases: Sequence[Case], samples: "Shown", reports: "Path", engine: Engine
) -> "Mapping[str, tuple[Finding, ...]]":
    """The findings of the suites of table ``target``, by plan id; empty if it names none.

    One batch holds all records that a plan has written to the topic: a pandas data frame, or if it is larger than
    FIRN_SUITES_BYTES, a DataFrame of Spark, if ``engine`` is one. Raises RefusedError if a suite can't be loaded.
    """
    identifier = ".".join(target.name())
    policy = Policies.parse(identifier, target.properties).default
    writing = [one for one in cases if one.written and one.claim.records_out]
    if policy.validate_suites == "none" or not writing:
        return {}
    from firnlake_expectations.case import Finding
    from firnlake_expectations.own_suites import findings_of_suites

    suites = [_suite(target, identifier, name.strip()) for name in policy.validate_suites.split(",")]
    most = _limit()
    found: dict[str, tuple[Finding, ...]] = {}
    for case in writing:
        size = case.written
        frame: pd.DataFrame | DataFrame
        sentence = "The table's suites are run on all records of the result."
        try:
            if size <= most:
                frame = _frame(records, case)
            elif isinstance(engine, SparkEngine):
                frame = engine.read(_readers(records, case), _plain(records))
            else:
                observed = f"Not judged: {size:,} bytes without Spark; FIRN_SUITES_BYTES is {most:,}."
                found[case.claim.plan_id] = (
                    Finding("firn.validate.suites", sentence, passed=False, observed=observed),
                )
                continue
            offset = records.reading.offset
            found[case.claim.plan_id] = findings_of_suites(suites, frame, identifier, offset, samples, reports)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is about the records of one plan
            told = f": {' '.join(str(error).split())}" if samples == "full" else ""  # it may quote a record
            observed = f"Not judged: {type(error).__name__}{told}."
            found[case.claim.plan_id] = (Finding("firn.validate.suites", sentence, passed=False, observed=observed),)
    return found


def _frame(records: JudgedRecords, case: Case) -> "pd.DataFrame":
    import pandas as pd

    read = [batch for one in _readers(records, case) for batch in one()]
    # Types of its own would make numbers floats or objects where one is NULL.
    return pa.Table.from_batches(read, _plain(records)).to_pandas(types_mapper=pd.ArrowDtype)


def _readers(records: JudgedRecords, case: Case) -> "list[Callable[[], Batches]]":
    """A reader for each file of the records that the plan of ``case`` has written to the topic."""
    parts, schema = (one for one in case.parts if one.side == AFTER), _plain(records)
    return [partial(_visible, one.read, schema, records.reading.level) for one in parts]


def _visible(
    read: "Callable[[Sequence[str] | None], Iterable[pa.RecordBatch]]", schema: pa.Schema, level: str
) -> "Batches":
    """The records that ``read`` gives, without quarantined ones and removed tombstones, whose levels are below 0."""
    for batch in read(None):
        stays = pc.fill_null(pc.greater_equal(batch.column(level), 0), fill_value=True)
        columns = zip(batch.filter(stays).columns, schema, strict=True)
        yield pa.RecordBatch.from_arrays([_as_plain(values, column.type) for values, column in columns], schema=schema)


def _as_plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_binary(values.type) and pa.types.is_string(kind):
        return pa.array([None if value is None else str(UUID(bytes=value)) for value in values.to_pylist()], kind)
    return values.cast(kind)


def _plain(records: JudgedRecords) -> pa.Schema:
    """The schema of ``records`` with types that Spark knows: none with 64-bit offsets or of a fixed length. A UUID is
    text, as in Spark."""
    uuids = {field.name for field in records.files.schema.fields if isinstance(field.field_type, UUIDType)}
    kinds = (pa.string() if one.name in uuids else _plain_type(one.type) for one in records.schema)
    return pa.schema([one.with_type(kind) for one, kind in zip(records.schema, kinds, strict=True)])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain_type(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


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
