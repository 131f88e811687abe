"""The suite of each lane: its promises as named expectations of Great Expectations, in SQL over the table of evidence.

The table has one row per plan: ``plan``, ``topic_partition``, and integers that are never NULL: the figures that count
the items checked, and the number of violations of each rule (see ``checkpoint``). An expectation is met when its query
returns no row. Each is a class of its own, whose name results and Data Docs show, for example
``expect_one_record_per_key``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from great_expectations import ExpectationSuite
from great_expectations.expectations.core.expect_table_row_count_to_equal import ExpectTableRowCountToEqual
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation

from firnlake_expectations.promises.table import promises_for
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firnlake_expectations.promises.promise import Promise


PLANS = "plans"
"""Name of the suite's parameter: the number of plans. Without rows every other expectation would be met."""


class PromiseKept(UnexpectedRowsExpectation):
    """No plan in the evidence breaks the promise. ``query`` sums up what was looked at; ``noun`` names an item."""

    query: str
    noun: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (*UnexpectedRowsExpectation.metric_dependencies, "query.table")
    success_keys: ClassVar[tuple[str, ...]] = (*UnexpectedRowsExpectation.success_keys, "query")

    def _validate(
        self, metrics: dict[str, Any], runtime_configuration: dict[str, Any] | None = None, execution_engine: Any = None
    ) -> dict[str, Any]:
        told = dict(super()._validate(metrics, runtime_configuration, execution_engine))
        (sums,) = metrics["query.table"]
        result = told["result"]
        result["observed_value"] = _observed(sums, self.noun, result["details"]["unexpected_rows"])
        result["details"] |= dict(sums)
        return told


def _observed(sums: Mapping[str, int], noun: str, rows: list[dict[str, Any]]) -> str:
    checked, plans = count(sums["checked"], noun), count(sums["plans"], "topic partition")
    if not rows:
        return f"0 of {checked} in {plans}"
    named = ", ".join(row["topic_partition"] for row in rows[:_NAMED])
    more = f" and {sums['failing'] - _NAMED:,} more" if sums["failing"] > _NAMED else ""
    return f"{count(sums['broken'], 'violation')} among {checked} in {plans}: {named}{more}"


_NAMED = 10
"""Number of topic partitions that an observed value names."""


def suite_of(lane: str) -> ExpectationSuite:
    """The suite of `lane`, which is the same for every job; run it with the parameter `PLANS`."""
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[
            ExpectTableRowCountToEqual(
                value={"$PARAMETER": PLANS}, description="The evidence has one row for each plan that was judged."
            ),
            *(_expectation(promise) for promise in promises_for(lane)),
        ],
    )


def _expectation(promise: Promise) -> PromiseKept:
    columns = [f'"{column}"' for column in promise.columns]
    broken = " + ".join(columns)
    failing = " OR ".join(f"{column} <> 0" for column in columns)
    return _class_named(promise.name)(
        unexpected_rows_query=f"SELECT plan, topic_partition, {', '.join(columns)} FROM {{batch}} WHERE {failing}",
        query=f'SELECT count(*) AS plans, coalesce(sum("{promise.checked}"), 0) AS checked, '
        f"coalesce(sum({broken}), 0) AS broken, count(CASE WHEN {failing} THEN 1 END) AS failing FROM {{batch}}",
        noun=promise.noun,
        description=promise.sentence,
        meta={"contract": promise.number},
    )


@cache
def _class_named(name: str) -> type[PromiseKept]:
    """The class that Great Expectations registers as `name`, made once: lanes share names, but not queries."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return type(words, (PromiseKept,), {"__doc__": PromiseKept.__doc__, "__module__": __name__})
