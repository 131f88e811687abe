"""Suites of a table's owner: Great Expectations runs them on the records of a result before anybody sees these.

Nothing is stored but the findings, which name offsets. They show values only if reports may show them.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pandas as pd
from great_expectations import ExpectationSuite
from great_expectations.expectations.registry import list_registered_expectation_implementations

from firnlake_expectations.case import Finding, Sample
from firnlake_expectations.checkpoint import ONE_AT_A_TIME, context_of, function_named
from firnlake_expectations.judge import SAMPLES_PER_RULE
from firnlake_expectations.wording import count, file_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from great_expectations.datasource.fluent.interfaces import Batch
    from pyspark.sql import DataFrame

    from firnlake_expectations.wording import Shown


_FUNCTION = re.compile(r"[\w.]+:\w+", re.ASCII)


def suite_named(name: str, table: str, read: Callable[[str], str]) -> ExpectationSuite:
    """The suite `name` of `table`: a location of Great Expectations' JSON, of which `read` returns the text, or
    ``module:function``, which takes the table's name and returns a suite.

    Raises ValueError if environment variable FIRN_SUITE_MODULES does not name the module, and if there is no suite with
    at least one expectation, all of known types; and any error of `read`.
    """
    if _FUNCTION.fullmatch(name):
        # Whoever may write a table's properties must not choose what this machine imports.
        if name.partition(":")[0] not in map(str.strip, os.environ.get("FIRN_SUITE_MODULES", "").split(",")):
            raise ValueError("FIRN_SUITE_MODULES does not name its module")
        try:
            suite = function_named(name)(table)
        except Exception as error:  # it is the owner's code
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if not isinstance(suite, ExpectationSuite):
            raise ValueError(f"it returns {type(suite).__name__}")  # the text of a property is wrong
        listed = len(suite.expectations)
    else:
        told = json.loads(read(name))
        if not isinstance(told, dict) or not isinstance(told.get("expectations"), list):
            raise ValueError("it is no suite in JSON")  # the text of a property is wrong
        types = list_registered_expectation_implementations()
        # Great Expectations itself would leave these out, and the rest would pass.
        unknown = sorted({str(one.get("type")) for one in told["expectations"] if one.get("type") not in types})
        if unknown:
            raise ValueError(f"it has expectations of unknown types: {', '.join(unknown)}")
        suite, listed = ExpectationSuite(**told), len(told["expectations"])
    if not listed or len(suite.expectations) != listed:
        raise ValueError(f"it has {count(len(suite.expectations), 'expectation')}")
    return suite


def findings_of_suites(
    suites: Iterable[ExpectationSuite],
    records: pd.DataFrame | DataFrame,
    table: str,
    offset: str,
    shown: Shown,
    reports: Path,
) -> tuple[Finding, ...]:
    """The findings of `suites` in the `records` of a result (a data frame of pandas or of Spark), whose column `offset`
    tells them apart: one for each expectation. An expectation that can't be checked has failed.

    Raises an error if a suite can't be run as a whole."""
    with ONE_AT_A_TIME:
        sources = context_of(reports).data_sources
        in_pandas = isinstance(records, pd.DataFrame)
        source = sources.add_pandas("firn-staged") if in_pandas else sources.add_spark("firn-staged")
        asset = source.add_dataframe_asset(file_name(table))
        batch = asset.add_batch_definition_whole_dataframe("staged").get_batch({"dataframe": records})
        try:
            return tuple(finding for suite in suites for finding in _findings(suite, batch, offset, shown))
        finally:
            if not isinstance(records, pd.DataFrame):
                records.unpersist()  # Great Expectations has persisted it, for its many passes


def _findings(suite: ExpectationSuite, batch: Batch, offset: str, shown: Shown) -> list[Finding]:
    asked = {"result_format": "COMPLETE", "unexpected_index_column_names": [offset], "include_unexpected_rows": False}
    results: Any = batch.validate(suite, result_format=asked).results
    if len(results) != len(suite.expectations):
        raise ValueError(f"{len(results)} of {count(len(suite.expectations), 'expectation')} checked")
    columns = batch.columns()
    return [_finding(suite.name, one.to_json_dict(), columns, offset, shown) for one in results]


def _finding(suite: str, one: Mapping[str, Any], columns: Sequence[str], offset: str, shown: Shown) -> Finding:
    config, result = one["expectation_config"], one["result"]
    told = {name: value for name, value in config["kwargs"].items() if name != "batch_id"}
    sentence = config.get("description") or f"{config['type']}: {json.dumps(told, default=str, sort_keys=True)}"
    if failed := _failed(one["exception_info"], columns, shown):
        observed = f"It could not be checked: {failed}."
    elif "element_count" in result:
        observed = f"{result['unexpected_count']:,} of {count(result['element_count'], 'record')}."
    elif shown == "full" and result.get("observed_value") is not None:
        observed = f"Observed: {result['observed_value']}."
    elif shown == "full" and result.get("partial_unexpected_list"):
        observed = f"Unexpected: {result['partial_unexpected_list'][:SAMPLES_PER_RULE]}."
    else:
        observed = "Met." if one["success"] else "Not met."
    return Finding(
        f"{suite}: {config['type']}",
        sentence,
        passed=bool(one["success"]),
        observed=observed,
        samples=() if one["success"] or shown == "none" else _samples(result.get("unexpected_index_list"), offset),
    )


_UNKNOWN = re.compile(r"""Error: The column "(.+)" in BatchData does not exist\.|name '(.+)' is not defined""")
"""What Great Expectations, or pandas in a row condition, says of an unknown column. The name is the suite's."""


def _failed(raised: Mapping[str, Any], columns: Sequence[str], shown: Shown) -> str:
    """Why an expectation could not be checked; empty if it was. Any other reason than an unknown column may quote a
    record."""
    every = [raised] if "raised_exception" in raised else raised.values()
    reasons = [str(one["exception_message"]).strip() for one in every if one["raised_exception"]]
    for reason in reasons:
        if unknown := _UNKNOWN.fullmatch(reason):
            return f"the records have no column {unknown[1] or unknown[2]}; found: {', '.join(columns)}"
    if reasons and shown != "full":
        return "the reason may quote a record; firn.report.samples = full shows it"
    return "; ".join(dict.fromkeys(" ".join(reason.split()).rstrip(".") for reason in reasons))


def _samples(unexpected: Sequence[Mapping[str, Any]] | None, offset: str) -> tuple[Sample, ...]:
    offsets = sorted(int(place[offset]) for place in unexpected or ())[:SAMPLES_PER_RULE]
    return tuple(Sample(one, None, "unexpected") for one in offsets)
