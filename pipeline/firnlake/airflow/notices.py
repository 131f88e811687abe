"""Notices to people about failed verdicts and overdue runs, by Airflow notifiers."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]
from airflow.sdk.module_loading import import_string  # type: ignore[attr-defined]

from firnlake.airflow.configuration import Notifier, TableSettings
from firnlake_expectations.wording import count

log = logging.getLogger(__name__)


def notifiers(settings: TableSettings) -> list[Callable[..., Any]]:
    """The notifiers of a table, ready to be called. Raises ValueError for a notifier that can't be created."""
    return [_made(one) for one in settings.notify]


def deadlines(settings: TableSettings) -> list[Any]:
    """The deadlines of the table's runs, counted from queueing: one per notifier, or just one, which logs overdue runs.

    Empty if ``deadline_minutes`` is not set.
    """
    if settings.deadline_minutes is None:
        return []
    late = {"table": settings.name, "minutes": settings.deadline_minutes}
    told = [late | {"notifier": one.path, "arguments": one.arguments} for one in settings.notify]
    interval = timedelta(minutes=settings.deadline_minutes)
    return [
        DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, interval, AsyncCallback(overdue, arguments))
        for arguments in told or [late]
    ]


async def overdue(
    table: str,
    minutes: int,
    notifier: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> None:
    """Report an overdue run in the triggerer's log, and by the notifier if there is one.

    The notifier gets the report as ``exception``, like a failed verdict. For deadlines, Airflow itself renders no
    templates, and awaits notifiers, though many can't be awaited. So this function renders the templates and calls it.
    """
    said = f"{table}: a run has not finished after {count(minutes, 'minute')} (deadline_minutes)"
    log.warning("%s", said)
    if notifier is not None:
        await asyncio.to_thread(import_string(notifier)(**(arguments or {})), dict(context or {}) | {"exception": said})


def _made(one: Notifier) -> Callable[..., Any]:
    try:
        notifier: Callable[..., Any] = import_string(one.path)(**one.arguments)
    except (ImportError, TypeError) as error:
        raise ValueError(
            f"notifier {one.path} can't be created: {error}; allowed: an installed Airflow notifier, with its own "
            "arguments"
        ) from error
    return notifier
