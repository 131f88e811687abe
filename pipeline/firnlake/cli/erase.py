"""Subcommand ``erase``: request that keys are erased, show the progress, certify and verify the erasure."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.keys import ONE_KEY, key_columns, keys_in, parse_key
from firnlake.cli.options import AsJson, EngineName, Now, TableName, at, engines
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.ask import Asked, ask
from firnlake.lanes.erasure.certificate import export
from firnlake.lanes.erasure.certify import VerifiedCertificate, certify, check_known, verify
from firnlake.lanes.erasure.status import RequestStatus, status
from firnlake.maintain.inventory import Blocker
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
    status: Annotated[bool, typer.Option("--status", help="Show every request and what blocks it.")] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Search the table and certify the fulfilled requests.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Search the table for --key and check that the key's certificate holds.")
    ] = False,
    request: Annotated[
        list[int] | None, typer.Option("--request", help="Only this request, with --status or --certify. Repeatable.")
    ] = None,
    now: Now = None,
    engine: EngineName = None,
    as_json: AsJson = False,
) -> None:
    """Request that keys are erased from all files of the table by a deadline; show, certify or verify requests.

    The table stores a digest of each key, never the key itself.
    """
    if status + certify + verify > 1:
        raise typer.BadParameter("give at most one of --status, --certify and --verify")
    if (status or certify) and (key or keys or topic or within is not None):
        raise typer.BadParameter("--status and --certify take requests (--request), not keys")
    if verify and (keys or len(key or ()) != 1):
        raise typer.BadParameter(ONE_KEY)
    if not (status or certify) and bool(key) == bool(keys):
        raise typer.BadParameter("give one of --key and --keys")
    lake, now_ms = Lake.load(), at(now)
    if status or certify or verify:
        if status:
            show_status(lake, table, request or [], now_ms, as_json)
        elif certify:
            certify_requests(lake, table, request or [], now_ms, engine, as_json)
        else:
            verify_key(lake, table, _named(lake, table, key or [])[0], topic, engine, as_json)
        return
    named = list(keys_in(keys, key_columns(lake, table))) if keys else _named(lake, table, key or [])
    asked = ask(lake, table, named, now_ms, topic, within)
    if as_json:
        show.as_json(_document(asked))
    else:
        _show(table, asked, now_ms)


def _named(lake: Lake, table: str, texts: Sequence[str]) -> list[tuple[bytes, ...]]:
    columns = key_columns(lake, table)
    keys = [key for text in texts if (key := parse_key(text, columns)) is not None]
    if len(keys) < len(texts):
        raise RefusedError(
            "'null:' is not a key; allowed: a key (`firn quarantine --clear` removes records without a key)"
        )
    return keys


def _show(table: str, asked: Asked, now_ms: int) -> None:
    if asked.id is None:
        show.line(f"{table}: earlier requests already cover every given key; nothing was changed")
        return
    places = ", ".join(f"{place} below offset {end}" for place, end in sorted(asked.below.items())[:_SHOWN])
    more = f" and {len(asked.below) - _SHOWN} more" if len(asked.below) > _SHOWN else ""
    told = f", of which earlier requests cover {asked.earlier:,}" if asked.earlier else ""
    rows = count(asked.keys * len(asked.below), "row")
    show.line(
        f"{table}: request {asked.id}: {count(asked.keys, 'key')} in {places}{more} ({rows}{told}), to be erased by "
        f"{show.moment(asked.deadline_ms, now_ms)}"
    )


def _document(asked: Asked) -> dict[str, object]:
    return {
        "request": asked.id,
        "keys": asked.keys,
        "topic": asked.topic,
        "below": {str(place): end for place, end in sorted(asked.below.items())},
        "requested_before": asked.earlier,
        "deadline": show.time(asked.deadline_ms),
        "expire_history": asked.expire_history,
    }


def show_status(lake: Lake, table: str, requests: Collection[int], now_ms: int, as_json: bool) -> None:
    """Print the requests to erase keys of ``table``, and what blocks each request."""
    every = status(lake, table, now_ms)
    check_known(table, [one.id for one in every], requests)
    states = [one for one in every if not requests or one.id in requests]
    if as_json:
        show.as_json([_status(one, now_ms) for one in states])
        return
    if not states:
        show.line(f"{table}: there is no request to erase a key")
        return
    show.table(
        f"{table}: requests to erase keys",
        ("request", "state", "keys", "topic", "searched", "deadline", "certificate", "blockers"),
        [
            (
                one.id,
                one.state(now_ms),
                one.keys,
                one.topic,
                f"{len(one.done)} of {count(len(one.done) + len(one.waiting), 'partition')}",
                show.moment(one.deadline_ms, now_ms),
                show.time(one.certificate.issued_ms) if one.certificate else None,
                len(one.blockers),
            )
            for one in states
        ],
    )
    for one in states:
        _show_blockers(one.id, one.blockers, now_ms)


def certify_requests(
    lake: Lake, table: str, requests: Collection[int], now_ms: int, engine: str | None, as_json: bool
) -> None:
    """Search ``table`` and issue certificates; exit with code 1 if something blocks a certificate."""
    with engines(engine or "local", f"firn erase {table} --certify", as_json) as started:
        done = certify(lake, table, now_ms, started.of(0), requests)
    pages = {request: str(page) for request, page in export(lake, table, done.issued).items()}
    if as_json:
        show.as_json(
            {
                "issued": [json.loads(one.document) for one in done.issued],
                "pages": pages,
                "blocked": [
                    {"request": one, "blockers": list(map(_blocker, own))} for one, own in done.blocked.items()
                ],
            }
        )
    else:
        for one in done.issued:
            show.line(f"{table}: request {one.request}: certificate issued: {pages[one.request]}")
        for request, own in done.blocked.items():
            show.line(f"{table}: request {request}: no certificate")
            _show_blockers(request, own, now_ms)
        if not (done.issued or done.blocked):
            show.line(f"{table}: no request is waiting for a certificate (see `firn erase {table} --status`)")
    if done.blocked:
        raise typer.Exit(1)


def verify_key(
    lake: Lake, table: str, key: Sequence[bytes], topic: str | None, engine: str | None, as_json: bool
) -> None:
    """Search ``table`` for ``key``; exit with code 1 if it has no certificate that holds, or has landed again."""
    with engines(engine or "local", f"firn erase {table} --verify", as_json) as started:
        verified = verify(lake, table, key, started.of(0), topic)
    if as_json:
        show.as_json(
            {
                "requests": list(verified.requests),
                "certificate": json.loads(verified.certificate.document) if verified.certificate else None,
                "holds": verified.holds,
                "landed_again": verified.landed_again,
                "blockers": list(map(_blocker, verified.blockers)),
            }
        )
    else:
        show.line(f"{table}: {_verdict(verified)}")
        for blocker in verified.blockers:
            show.line(f"  {blocker}")
        if verified.landed_again:
            show.line(f"{table}: {_again(verified)}")
    if not verified.holds or verified.landed_again:
        raise typer.Exit(1)


def _verdict(verified: VerifiedCertificate) -> str:
    if verified.certificate is None:
        requests = "request" if len(verified.requests) == 1 else "requests"
        return f"the key has no certificate yet ({requests} {', '.join(map(str, verified.requests))})"
    issued_at = show.time(verified.certificate.issued_ms)
    issued = f"the certificate of request {verified.certificate.request}, issued {issued_at},"
    if not verified.is_intact:
        return f"{issued} has been changed since"
    return f"{issued} {'holds' if verified.holds else 'does not hold'}"


def _again(verified: VerifiedCertificate) -> str:
    after = (
        "the key landed again after its request"
        if verified.certificate is None or verified.landed_before
        else "the key landed again after its certificate"
    )
    return f"{after}: its newer records, past the offsets of the request, stay until another request covers them"


def _show_blockers(request: int, blockers: Sequence[Blocker], now_ms: int) -> None:
    for one in blockers:
        until = "" if one.until_ms is None else f" (until {show.moment(one.until_ms, now_ms)})"
        show.line(f"  request {request}: {one}{until}")


def _status(one: RequestStatus, now_ms: int) -> dict[str, object]:
    return {
        "request": one.id,
        "state": one.state(now_ms),
        "topic": one.topic,
        "keys": one.keys,
        "requested": show.time(one.requested_ms),
        "deadline": show.time(one.deadline_ms),
        "searched": list(map(str, one.done)),
        "waiting": list(map(str, one.waiting)),
        "destroyed_files": one.destroyed_files,
        "records_erased": one.records_erased,
        "certificate": json.loads(one.certificate.document) if one.certificate else None,
        "blockers": list(map(_blocker, one.blockers)),
    }


def _blocker(one: Blocker) -> dict[str, object]:
    return {
        "kind": one.kind,
        "name": one.name,
        "why": one.why,
        "lifted_by": one.lifted_by,
        "until": None if one.until_ms is None else show.time(one.until_ms),
    }
