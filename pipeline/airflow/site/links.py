"""Links from a run's tasks to Firn's pages: the buttons under "Extra links" of a task instance."""

from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseOperatorLink

from pipeline.airflow.site.addresses import in_the_ui
from pipeline.clock import parse

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

AS_OF = "{{ (dag_run.logical_date or dag_run.run_after).isoformat() }}"
"""Template for the clock of a run's plans, which identifies the run's verdicts: the argument ``as_of`` of a task."""


@attrs.define
class TableLink(BaseOperatorLink):
    """Link to the page of a table."""

    table: str

    @property
    def name(self) -> str:
        return f"Firn: {self.table}"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the table's page; Airflow asks for it when the task ends, and stores it."""
        return in_the_ui(self.table)


@attrs.define
class ReportLink(BaseOperatorLink):
    """Link to the verdicts of a run, each with its report; for a task without a clock, to the table's last verdicts."""

    table: str

    @property
    def name(self) -> str:
        return "Data-quality report"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:  # noqa: ARG002  # Airflow's
        """The address of the list of verdicts; Airflow asks for it when the task ends, with its templates rendered."""
        as_of = _as_of(operator)
        return in_the_ui(self.table, "/reports", **({"as_of": parse(as_of)} if as_of else {}))


def links_of(table: str) -> tuple[BaseOperatorLink, BaseOperatorLink]:
    """The links of a task on ``table``."""
    return ReportLink(table), TableLink(table)


def _as_of(operator: Any) -> str | None:
    arguments = getattr(operator, "op_kwargs", None) or {}
    clock: str | None = arguments.get("as_of") or getattr(operator, "as_of", None)
    return clock
