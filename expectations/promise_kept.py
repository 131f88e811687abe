"""The one expectation: that nothing breaks a promise, judged by Great Expectations on the table of findings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from great_expectations import ExpectationSuite
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

if TYPE_CHECKING:
    from collections.abc import Iterable

    from expectations.findings import Row

FINDINGS = "firn.findings"


class FindingsMetric(TableMetricProvider):
    """The rows of the table of findings by plan and promise."""

    metric_name = FINDINGS
    value_keys = ()

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805  # Great Expectations calls it as a class method, by name
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],  # noqa: ARG002  # the signature that Great Expectations calls
        metrics: dict[str, Any],  # noqa: ARG002
        runtime_configuration: dict[str, Any],  # noqa: ARG002
    ) -> dict[tuple[str, str], dict[str, Any]]:
        batch, _, _ = execution_engine.get_compute_domain(
            domain_kwargs=metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        return {(row["plan"], row["promise"]): row for row in batch.to_dict("records")}


class ExpectPromiseKept(BatchExpectation):
    """Nothing of what was looked at breaks the promise `promise` about plan `plan`; None: about any plan of the batch.

    The batch is a table of findings: `plan`, `promise`, `checked`, `broken`, `observed` and `samples` (JSON).
    """

    plan: str | None = None
    promise: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (FINDINGS,)
    success_keys: ClassVar[tuple[str, ...]] = ("plan", "promise")
    args_keys: ClassVar[tuple[str, ...]] = ("plan", "promise")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002  # Great Expectations' signature
        execution_engine: Any = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        found: dict[tuple[str, str], dict[str, Any]] = metrics[FINDINGS]
        if self.plan is not None:
            told = _told(found[self.plan, self.promise])
            return {"success": told["details"]["broken"] == 0, "result": told}
        plans = {plan: _told(row) for (plan, promise), row in found.items() if promise == self.promise}
        broken = sum(told["details"]["broken"] for told in plans.values())
        observed = f"{len(plans):,} plans, broken {broken:,} times"
        return {"success": broken == 0, "result": {"observed_value": observed, "details": {"plans": plans}}}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A line of the table as the result of an expectation."""
    details = {"checked": int(row["checked"]), "broken": int(row["broken"]), "samples": json.loads(row["samples"])}
    return {"observed_value": row["observed"], "details": details}


def batch_of(rows: Iterable[Row]) -> pd.DataFrame:
    """The table of findings as Great Expectations reads it."""
    return pd.DataFrame(
        [
            {
                "plan": row.plan,
                "promise": row.promise.name,
                "checked": row.checked,
                "broken": row.broken,
                "observed": row.observed,
                "samples": json.dumps([sample.to_dict() for sample in row.samples]),
            }
            for row in rows
        ]
    )


def suite_of(lane: str, rows: Iterable[Row]) -> ExpectationSuite:
    """One expectation for each of `rows`, described by its sentence."""
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[
            ExpectPromiseKept(
                plan=row.plan,
                promise=row.promise.name,
                description=row.sentence,
                meta={"contract": row.promise.number},
            )
            for row in rows
        ],
    )


def shared_suite_of(lane: str, tables: Iterable[Iterable[Row]]) -> ExpectationSuite:
    """One expectation for each promise about any of the plans of `tables`."""
    promises = {row.promise.name: row.promise for table in tables for row in table}
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[
            ExpectPromiseKept(promise=name, meta={"contract": promise.number}) for name, promise in promises.items()
        ],
    )
