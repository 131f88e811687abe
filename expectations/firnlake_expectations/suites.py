"""The suite of each lane: its promises as named expectations of Great Expectations, in SQL over the table of evidence.

The table has one row per plan: ``plan``, ``topic_partition``, ``snapshot`` (the one on which the plan was made), and
integers that are never NULL: the figures that count the items checked, and the number of violations of each rule (see
``checkpoint``). An expectation is met when its query returns no row. Each is a class of its own, whose name results and
Data Docs show, for example ``expect_one_record_per_key``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from great_expectations import ExpectationSuite
from great_expectations.core.id_dict import IDDict
from great_expectations.expectations.core.expect_table_row_count_to_equal import ExpectTableRowCountToEqual
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.validator import ValidationDependencies

from firnlake_expectations.promises.table import OWN_SUITES, promises_for
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from firnlake_expectations.promises.promise import Promise


PLANS = "plans"
"""Name of the suite's parameter: the number of plans. Without rows every other expectation would be met."""


class PromiseKept(UnexpectedRowsExpectation):
    """No plan in the evidence breaks the promise.

    checked      the column that counts the items checked
    violations   the columns that count violations
    noun         the noun for an item
    query        the sums of all columns: the same for all expectations of a suite, so that it runs once
    """

    checked: str
    violations: tuple[str, ...]
    noun: str
    query: str

    def get_validation_dependencies(
        self,
        execution_engine: Any = None,  # noqa: ARG002  # Great Expectations' signature
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> ValidationDependencies:
        """The metrics that the expectation needs. Great Expectations' own way to find them out takes 4 ms each."""
        metrics = {
            name: MetricConfiguration(name, IDDict(batch_id=self.batch_id), IDDict({key: getattr(self, key)}))
            for name, key in (("unexpected_rows_query.table", "unexpected_rows_query"), ("query.table", "query"))
        }
        return ValidationDependencies(metrics, {"result_format": "COMPLETE"})

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        rows = metrics["unexpected_rows_query.table"]
        (sums,) = metrics["query.table"]
        told = {"snapshots": sums["snapshots"], "plans": sums["plans"], "checked": sums[self.checked]}
        told |= {name: sums[name] for name in self.violations}
        broken = sum(sums[name] for name in self.violations)
        looked_at = f"{count(sums[self.checked], self.noun)} in {count(sums['plans'], 'topic partition')}"
        observed = f"0 of {looked_at}"
        if rows or broken:
            named = ", ".join(row["topic_partition"] for row in rows[:_NAMED])
            more = " and others" if len(rows) > _NAMED else ""
            observed = f"{count(broken, 'violation')} among {looked_at}: {named}{more}"
        details = {"unexpected_rows": rows} | told
        return {"success": not rows and broken == 0, "result": {"observed_value": observed, "details": details}}


_NAMED = 10
"""Number of topic partitions that an observed value names."""


def suite_of(lane: str) -> ExpectationSuite:
    """The suite of `lane`, which is the same for every job; run it with the parameter `PLANS`."""
    promises = (*promises_for(lane), OWN_SUITES)
    columns = dict.fromkeys(name for promise in promises for name in (promise.checked, *promise.columns))
    sums = ", ".join(f'sum("{name}") AS "{name}"' for name in columns)
    rows = ExpectTableRowCountToEqual(
        value={"$PARAMETER": PLANS}, description="The evidence has one row for each plan that was judged."
    )
    query = f"SELECT group_concat(DISTINCT snapshot) AS snapshots, count(*) AS plans, {sums} FROM {{batch}}"
    return ExpectationSuite(
        name=f"firn-{lane}", expectations=[rows, *(_expectation(promise, query) for promise in promises)]
    )


def _expectation(promise: Promise, query: str) -> PromiseKept:
    columns = [f'"{column}"' for column in promise.columns]
    condition = " OR ".join(f"{column} <> 0" for column in columns)
    return _class_named(promise.name)(
        unexpected_rows_query=f"SELECT plan, topic_partition, {', '.join(columns)} FROM {{batch}} WHERE {condition}",
        query=query,
        checked=promise.checked,
        violations=promise.columns,
        noun=promise.noun,
        description=f"{promise.sentence} ({promise.name})",
        meta={"contract": promise.number},
    )


@cache
def _class_named(name: str) -> type[PromiseKept]:
    """The class that Great Expectations registers as `name`, made once: lanes share names, but not queries."""
    words = "".join(word.capitalize() for word in name.split("_"))
    return type(words, (PromiseKept,), {"__doc__": PromiseKept.__doc__, "__module__": __name__})
