"""Subcommand ``erase``: request that keys are erased, show the progress, and certify the erasure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import AsJson, EngineName, Now, TableName, at, engines, key_columns, keys_in, parse_key
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.certificate import certify, choose, obstacles
from firnlake.lanes.erasure.requests import Erasure, Request, ask, erasures_of
from firnlake.lanes.erasure.search import OLDER, Problem
from firnlake.table.segment import TopicPartition
from firnlake_expectations.wording import count

_SHOWN = 10
"""Maximum number of topic partitions that a line lists."""


def erase(
    table: TableName,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic. May be left out if the table has only one.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="The key: text, hex:<digits> or base64:<letters>; commas separate the values of a composite key. "
            "Repeatable, for several keys.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="A file with one key per line, written as for --key.",
        ),
    ] = None,
    within: Annotated[
        int | None,
        typer.Option(
            "--within",
            parser=clock.parse_span,
            metavar="DURATION",
            help="Time from now until the deadline, for example 30d or 12h. Default: 30d.",
        ),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Show every request and what it waits for.")] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Search the table and certify the fulfilled requests; with --request, search again for one that has a "
            "certificate.",
        ),
    ] = False,
    request: Annotated[
        list[str] | None, typer.Option("--request", help="Only this request, with --status or --certify. Repeatable.")
    ] = None,
    now: Now = None,
    engine: EngineName = None,
    as_json: AsJson = False,
) -> None:
    """Request that keys are erased from all files of the table by a deadline; show or certify requests.

    The table stores a digest of each key, never the key itself.
    """
    if status and certify:
        raise typer.BadParameter("give at most one of --status and --certify")
    if (status or certify) and (key or keys or topic or within is not None):
        raise typer.BadParameter("--status and --certify take requests (--request), not keys")
    if not (status or certify) and bool(key) == bool(keys):
        raise typer.BadParameter("give one of --key and --keys")
    lake, now_ms = Lake.load(), at(now)
    if status:
        _show_status(lake, table, request or [], now_ms, as_json)
    elif certify:
        _certify(lake, table, request or [], now_ms, engine, as_json)
    else:
        named = list(keys_in(keys, key_columns(lake, table))) if keys else _named(lake, table, key or [])
        _show_request(table, ask(lake, table, named, now_ms, topic, within), now_ms, as_json)


def _named(lake: Lake, table: str, texts: Sequence[str]) -> list[tuple[bytes, ...]]:
    columns = key_columns(lake, table)
    keys = [key for text in texts if (key := parse_key(text, columns)) is not None]
    if len(keys) < len(texts):
        raise RefusedError(
            "'null:' is not a key; allowed: a key (`firn quarantine --clear` removes records without a key)"
        )
    return keys


def _show_request(table: str, request: Request, now_ms: int, as_json: bool) -> None:
    if as_json:
        show.as_json(request)
        return
    ends = [
        f"{TopicPartition(request.topic, partition)} below offset {end}" for partition, end in request.log_ends.items()
    ]
    more = f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else ""
    show.line(
        f"{table}: request {request.id}: {count(len(request.digests), 'key')} in {', '.join(ends[:_SHOWN])}{more}, "
        f"to be erased by {show.moment(request.deadline_ms, now_ms)}"
    )


def _show_status(lake: Lake, table: str, requests: Sequence[str], now_ms: int, as_json: bool) -> None:
    with lake.answering():
        loaded = lake.table(table)
        chosen = choose(table, erasures_of(loaded), requests)
        rows = [(one.request, one, why) for one, why in obstacles(lake, loaded, table, chosen)]
    if as_json:
        show.as_json(
            [
                request.model_dump(mode="json")
                | {"state": _state(one, why, now_ms), "problems": why, "certificate": one.certificate}
                for request, one, why in rows
            ]
        )
    elif not rows:
        show.line(f"{table}: there is no request to erase a key")
    else:
        show.table(
            f"{table}: requests to erase keys",
            ("request", "state", "keys", "topic", "deadline", "certificate"),
            [
                (
                    request.id,
                    _state(one, why, now_ms),
                    len(request.digests),
                    request.topic,
                    show.moment(request.deadline_ms, now_ms),
                    (one.certificate or {}).get("issued"),
                )
                for request, one, why in rows
            ],
        )
        for request, one, why in rows:
            for problem in why:
                show.line(f"  request {request.id}: {problem}")
            if not why and not one.certificate:
                must = f"every file must be searched: firn maintain {table}, or firn erase {table} --certify"
                show.line(f"  request {request.id}: {must}")


def _state(erasure: Erasure, problems: Sequence[Problem], now_ms: int) -> str:
    """``certified``, ``overdue``, ``erased`` (from main), or ``open``."""
    if erasure.certificate is not None:
        return "certified"
    if now_ms > erasure.request.deadline_ms:
        return "overdue"
    return "erased" if all(one.where == OLDER for one in problems) else "open"


def _certify(lake: Lake, table: str, requests: Sequence[str], now_ms: int, engine: str | None, as_json: bool) -> None:
    """Search ``table`` and issue certificates; exit with code 1 if something prevents or contradicts a certificate."""
    with engines(engine or "local", f"firn erase {table} --certify", as_json) as started:
        certified = certify(lake, table, now_ms, started.of(1), requests)  # how much it reads is not known
    if as_json:
        blocked = [{"request": key, "problems": list(some)} for key, some in certified.blocked.items()]
        show.as_json({"issued": list(certified.issued), "pages": certified.pages, "blocked": blocked})
    else:
        for document in certified.issued:
            request = str(document["request"])
            show.line(
                f"{table}: request {request}: certificate issued {document['issued']}: {certified.pages[request]}"
            )
        for request, problems in certified.blocked.items():
            show.line(f"{table}: request {request}: no certificate")
            for problem in problems:
                show.line(f"  {problem}")
        if not (certified.issued or certified.blocked):
            show.line(f"{table}: no request is waiting for a certificate (see `firn erase {table} --status`)")
    if certified.blocked:
        raise typer.Exit(1)
