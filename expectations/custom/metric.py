"""The one metric that all expectations of this package share, so that a suite measures once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from expectations.claim import Claim
from expectations.evidence import Evidence, collect_plain_evidence, examine

EVIDENCE = "firn.evidence"


class EvidenceMetric(TableMetricProvider):
    """`Evidence` about a batch: what `as_batch` made of it; of a `comparison` where there is a claim; else of any table
    of keyed records.

    Great Expectations computes a metric once per batch and value keys, however many expectations ask for it.
    """

    metric_name = EVIDENCE
    value_keys = ("claim", "samples")

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805  # Great Expectations calls it as a class method, by name
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],  # noqa: ARG002  # the signature that Great Expectations calls
        runtime_configuration: dict[str, Any],  # noqa: ARG002
    ) -> Evidence:
        records, _, _ = execution_engine.get_compute_domain(
            domain_kwargs=metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        claim = metric_value_kwargs["claim"]
        samples = metric_value_kwargs["samples"]
        if claim is None:
            return collect_plain_evidence(records, samples=samples)
        return examine(records, [Claim.from_json(claim)], samples=samples)[0]

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],  # noqa: ARG002
        metrics: dict[str, Any],  # noqa: ARG002
        runtime_configuration: dict[str, Any],  # noqa: ARG002
    ) -> Evidence:
        batch, _, _ = execution_engine.get_compute_domain(
            domain_kwargs=metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        return Evidence(**batch.iloc[0].to_dict())


def as_batch(evidence: Evidence) -> pd.DataFrame:
    """Evidence that was collected already, as a batch of one row for the expectations of its plan."""
    return pd.DataFrame([{field.name: getattr(evidence, field.name) for field in fields(evidence)}])
