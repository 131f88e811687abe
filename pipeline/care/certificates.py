"""Certificates of erasures (C30): the last part of care, because expiry and orphans are what they wait for."""

from pipeline.care.garbage import Garbage, Kind
from pipeline.engine.local import LocalEngine
from pipeline.erase.stored import read_erasures
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.branches import ERASURES
from pipeline.prove.certify import certify, uncertified
from pipeline.prove.export import export
from pipeline.prove.history import vanished


def certificates(lake: Lake, identifier: str, now_ms: int, *, issue: bool) -> list[Garbage]:
    """A finding per request of table ``identifier`` that is erased from main and had no certificate.

    With ``issue`` the table is searched and certificates are issued where nothing is found; not before the files that
    held the records have left all snapshots. Raises UnavailableError when catalog or store do not answer.
    """
    table = lake.table(identifier)
    if ERASURES not in table.metadata.refs:
        return []
    try:
        if not issue:
            known = read_erasures(table)
            return [
                _finding(request, "it is erased from main: a run searches the table for it")
                for request in uncertified(known, vanished(lake, table, identifier, known))
            ]
        done = certify(lake, identifier, now_ms, LocalEngine(), quick=True)
    except RefusedError as error:
        return [Garbage.of_error(Kind.CERTIFICATE, identifier, error)]
    written = export(lake, identifier, done.issued)
    return [
        *(_finding(request, f"issued: {path}") for request, path in written.items()),
        *(_finding(request, "; ".join(map(str, own))) for request, own in done.blocked.items()),
    ]


def _finding(request: int, reason: str) -> Garbage:
    return Garbage(Kind.CERTIFICATE, f"request {request}", goes=False, reason=reason, files=0)
