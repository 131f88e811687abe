"""Subcommand ``erase``: request that keys are erased, see how far that is, certify and verify it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline import clock
from pipeline.cli import show
from pipeline.cli.options import AsJson, EngineName, Now, TableName, at
from pipeline.erase.ask import Asked, ask
from pipeline.errors import RefusedError
from pipeline.explain import parse_key
from pipeline.lake import Lake

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
        from pipeline.cli import proved

        if status:
            proved.show_status(lake, table, request or [], now_ms, as_json)
        elif certify:
            proved.certify_requests(lake, table, request or [], now_ms, engine, as_json)
        else:
            proved.verify_key(lake, table, _of_options(key or []), topic, engine, as_json)
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
