"""Subcommand ``erase``: request that keys are erased, see how far that is, certify and verify it."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import AsJson, EngineName, Now, TableName, at, engines
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.versions import parse_key
from firnlake.lanes.erasure.ask import Asked, ask
from firnlake.lanes.erasure.certificate import export
from firnlake.lanes.erasure.certify import VerifiedCertificate, certify, check_known, verify
from firnlake.lanes.erasure.status import RequestStatus, status
from firnlake.maintain.inventory import Blocker

_SHOWN = 10
"""Maximum number of topic partitions that a line lists."""


def erase(
    table: TableName,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The topic. May be left out where the table has only one.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Text, hex:<digits> or base64:<letters>; once per column of a composite key.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys", metavar="FILE", help="A key per line, as for --key; columns of a composite key by tabs."
        ),
    ] = None,
    within: Annotated[
        int | None,
        typer.Option(
            "--within",
            parser=clock.parse_span,
            metavar="DURATION",
            help="No file may hold the key after this time, for example 30d or 12h. Default: firn.erase.within.ms.",
        ),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Show every request, and what is in its way.")] = False,
    certify: Annotated[
        bool, typer.Option("--certify", help="Search the table, and certify the requests that are fulfilled.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Search the table for --key, and say whether its certificate holds.")
    ] = False,
    request: Annotated[
        list[int] | None, typer.Option("--request", help="Only this request (--status, --certify). Repeatable.")
    ] = None,
    now: Now = None,
    engine: EngineName = None,
    as_json: AsJson = False,
) -> None:
    """Request that no file of the table holds a key any more, by a deadline; show, certify or verify it.

    The table keeps a digest of the key, never the key.
    """
    if status + certify + verify > 1:
        raise typer.BadParameter("give at most one of --status, --certify and --verify")
    if (status or certify) and (key or keys or topic or within is not None):
        raise typer.BadParameter("--status and --certify take requests (--request), not keys")
    if not (status or certify) and (bool(key) == bool(keys) or (verify and keys)):
        raise typer.BadParameter("give --key" if verify else "give one of --key and --keys")
    lake, now_ms = Lake.load(), at(now)
    if status or certify or verify:
        if status:
            show_status(lake, table, request or [], now_ms, as_json)
        elif certify:
            certify_requests(lake, table, request or [], now_ms, engine, as_json)
        else:
            verify_key(lake, table, _of_options(key or []), topic, engine, as_json)
        return
    named = list(_of_file(keys)) if keys else [_of_options(key or [])]
    asked = ask(lake, table, named, now_ms, topic, within)
    if as_json:
        show.as_json(_document(asked))
    else:
        _show(table, asked, now_ms)


def _of_options(texts: list[str]) -> tuple[bytes, ...]:
    key = parse_key(texts)
    if key is None:
        raise RefusedError("null: is no key; allowed: a key (records without one: `firn quarantine --clear`)")
    return key


def _of_file(path: Path) -> Iterator[tuple[bytes, ...]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(
            f"file {path} can't be read: {error.strerror}; allowed: a file with a key per line"
        ) from error
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise RefusedError(
            f"file {path} is not UTF-8: {error}; allowed: a key per line (hex:<digits> for keys that are no text)"
        ) from error
    if not lines:
        raise RefusedError(f"file {path} is empty; allowed: a key per line")
    for number, line in enumerate(lines, start=1):
        key = parse_key(line.split("\t")) if line else None
        if key is None:
            raise RefusedError(
                f"file {path}: line {number} is no key: {line!r}; allowed: a key per line (text: for the empty key)"
            )
        yield key


def _show(table: str, asked: Asked, now_ms: int) -> None:
    if asked.id is None:
        show.line(f"{table}: an earlier request asks for this already; nothing was changed")
        return
    places = ", ".join(f"{place} below offset {end}" for place, end in sorted(asked.below.items())[:_SHOWN])
    more = f" and {len(asked.below) - _SHOWN} more" if len(asked.below) > _SHOWN else ""
    told = f", {asked.earlier} of them requested before" if asked.earlier else ""
    rows = asked.keys * len(asked.below)
    show.line(
        f"{table}: request {asked.id}: {asked.keys:,} keys in {places}{more} ({rows:,} rows{told}), to be erased by "
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
    """Print the requests of ``table``, and the blockers of each."""
    every = status(lake, table, now_ms)
    check_known(table, [one.id for one in every], requests)
    states = [one for one in every if not requests or one.id in requests]
    if as_json:
        show.as_json([_status(one, now_ms) for one in states])
        return
    if not states:
        show.line(f"{table}: no key was requested to be erased")
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
                f"{len(one.done)} of {len(one.done) + len(one.waiting)} partitions",
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
    """Search ``table`` and issue certificates; exits with 1 when a request stays without one."""
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
            show.line(f"{table}: no request waits for its certificate (firn erase {table} --status)")
    if done.blocked:
        raise typer.Exit(1)


def verify_key(
    lake: Lake, table: str, key: Sequence[bytes], topic: str | None, engine: str | None, as_json: bool
) -> None:
    """Search ``table`` for ``key``; exits with 1 unless its certificate holds and no record of it landed again."""
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
    names = ", ".join(map(str, verified.requests))
    if verified.certificate is None:
        return f"the key has no certificate yet (request {names})"
    issued = f"the certificate of request {verified.certificate.request}, {show.time(verified.certificate.issued_ms)},"
    if not verified.is_intact:
        return f"{issued} is not as it was issued"
    return f"{issued} {'holds' if verified.holds else 'does not hold'}"


def _again(verified: VerifiedCertificate) -> str:
    after = (
        "the key landed again after its request"
        if verified.certificate is None or verified.landed_before
        else ("the key landed again after its certificate")
    )
    return f"{after}: records with offsets past those of the request are new, and stay until they are requested too"


def _show_blockers(request: int, blockers: Sequence[Blocker], now_ms: int) -> None:
    for one in blockers:
        until = "" if one.until_ms is None else f" (by {show.moment(one.until_ms, now_ms)})"
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
