"""Output of ``firn erase --status``, ``--certify`` and ``--verify``."""

import json
from collections.abc import Collection, Sequence

import typer

from pipeline.cli import show
from pipeline.cli.options import engines
from pipeline.lake import Lake
from pipeline.prove.blockers import Blocker
from pipeline.prove.certify import certify, check_known
from pipeline.prove.export import export
from pipeline.prove.status import RequestStatus, status
from pipeline.prove.verify import Verified, verify


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


def _verdict(verified: Verified) -> str:
    names = ", ".join(map(str, verified.requests))
    if verified.certificate is None:
        return f"the key has no certificate yet (request {names})"
    issued = f"the certificate of request {verified.certificate.request}, {show.time(verified.certificate.issued_ms)},"
    if not verified.is_intact:
        return f"{issued} is not as it was issued"
    return f"{issued} {'holds' if verified.holds else 'does not hold'}"


def _again(verified: Verified) -> str:
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
