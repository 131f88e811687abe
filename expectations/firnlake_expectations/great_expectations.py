"""The only expectation, that nothing breaks a promise, and Great Expectations' pages made readable offline."""

from __future__ import annotations

import json
import re
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pandas as pd
from great_expectations import ExpectationSuite
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.view.view import DefaultJinjaPageView

from firnlake_expectations.store import BATCH, context_in_memory
from firnlake_expectations.templates import CONTENT_POLICY, PAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from great_expectations.core.batch_definition import BatchDefinition


Line: TypeAlias = "dict[str, Any]"
"""A row of the table of findings, as `Row.to_dict` returns it."""

FINDINGS = "firn.findings"
_ONE_AT_A_TIME = Lock()
"""The data source judges the batch that it was given last."""


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
    """No checked item breaks the promise `promise` about plan `plan`, or about any plan of the batch if `plan` is None.

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
        rows: dict[tuple[str, str], dict[str, Any]] = metrics[FINDINGS]
        if self.plan is not None:
            told = _told(rows[self.plan, self.promise])
            return {"success": told["details"]["broken"] == 0, "result": told}
        plans = {plan: _told(row) for (plan, promise), row in rows.items() if promise == self.promise}
        broken = sum(told["details"]["broken"] for told in plans.values())
        observed = f"plans: {len(plans):,}, violations: {broken:,}"
        return {"success": broken == 0, "result": {"observed_value": observed, "details": {"plans": plans}}}


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as the result of an expectation."""
    details = {"checked": int(row["checked"]), "broken": int(row["broken"]), "samples": json.loads(row["samples"])}
    return {"observed_value": row["observed"], "details": details}


def validated(lane: str, lines: Sequence[Line], *, shared: bool) -> dict[str, Any]:
    """The validation result of `lines`, JSON-ready: one expectation per line, described by the line's sentence.
    If `shared`, one expectation per promise, about all of the plans."""
    suite = _shared_suite_of(lane, lines) if shared else _suite_of(lane, lines)
    with _ONE_AT_A_TIME:
        result: Any = _table_of_findings().get_batch({"dataframe": _batch_of(lines)}).validate(suite)
    return dict(result.to_json_dict())


@cache
def _table_of_findings() -> BatchDefinition[Any]:
    """The table of findings, as Great Expectations knows it. Made once: it takes as long as a validation."""
    source, asset = BATCH.split("-")
    definition = context_in_memory().data_sources.add_pandas(source).add_dataframe_asset(asset)
    return definition.add_batch_definition_whole_dataframe(asset)


def _batch_of(lines: Iterable[Line]) -> pd.DataFrame:
    """The table of findings as the data frame that Great Expectations reads."""
    columns = ("plan", "promise", "checked", "broken", "observed")
    return pd.DataFrame(
        [{name: line[name] for name in columns} | {"samples": json.dumps(line["samples"])} for line in lines]
    )


def _suite_of(lane: str, lines: Iterable[Line]) -> ExpectationSuite:
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[
            ExpectPromiseKept(
                plan=line["plan"],
                promise=line["promise"],
                description=line["sentence"],
                meta={"contract": line["number"]},
            )
            for line in lines
        ],
    )


def _shared_suite_of(lane: str, lines: Iterable[Line]) -> ExpectationSuite:
    numbers = {line["promise"]: line["number"] for line in lines}
    return ExpectationSuite(
        name=f"firn-{lane}",
        expectations=[ExpectPromiseKept(promise=name, meta={"contract": number}) for name, number in numbers.items()],
    )


_TAKEN_OUT = re.compile(
    r"<(script|style|footer)\b.*?</\1\s*>|<link\b[^>]*>|<img\b[^>]*>|<meta\b[^>]*>"
    r"|<nav class=\"navbar navbar-expand.*?</nav>\s*</div>\s*</nav>|<p>\s*Data Docs autogenerated.*?</p>",
    re.DOTALL | re.IGNORECASE,
)

_DEAD_LINK = re.compile(r"<a href=\"[^\"]*/expectations/[^\"]*\"\s*>(.*?)</a>", re.DOTALL)
"""Links to a suite's page, which does not exist because a suite's sentences are about one plan."""


def offline(html: str, home: str) -> str:
    """The page without external assets, with Firn's style, a policy that forbids loading, and a link to `home`."""
    style = "".join((PAGES / name).read_text(encoding="utf-8") for name in ("style.css", "data_docs.css"))
    head = (
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_POLICY}"><style>{style}</style>'
    )
    kept = _DEAD_LINK.sub(r"\1", _TAKEN_OUT.sub("", html)).replace("<head>", head, 1)
    return kept.replace("<body>", f'<body><p class="home"><a href="{home}">Compaction reports</a></p>', 1)


class OfflineResultPage(DefaultJinjaPageView):
    """The page of one validation result: `data_docs/validations/<suite>/<run>/<time>/<batch>.html`."""

    def render(self, document: Any, template: str | None = None, **kwargs: Any) -> str:
        page: str = super().render(document, template, **kwargs)  # type: ignore[no-untyped-call]  # GX's
        return offline(page, "../../../../../index.html")
