"""Orphans that may not be this table's: it never named them, and no folder of Firn's own holds them.

They are a dead writer's, or another table's, or of this table's life in another catalog, and nobody can tell. So they
stay, unless the operator says that they may go, and no other table of the catalog can be meant. Files in Firn's own
folders stay as well where another table's files lie at, above or below the location.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.table import Table

from pipeline.care.contents import Contents
from pipeline.care.garbage import Garbage, Kind
from pipeline.care.listing import Listing
from pipeline.care.named_once import named_once
from pipeline.care.places import Places
from pipeline.care.shared import ORPHANS, UnknownTableError, check_alone
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.folders import Stored
from pipeline.policy import Policies


def held_back(
    lake: Lake,
    target: Table,
    places: Places,
    contents: Contents,
    listing: Listing,
    old: Sequence[Stored],
    now_ms: int,
) -> tuple[frozenset[str], list[Garbage]]:
    """Paths of the files of ``old``, which nothing refers to, that stay all the same, and findings that say why."""
    own = [file for file in old if places.job_of(file)]
    others = [file for file in old if not places.job_of(file)]
    named = named_once(target, contents, [file.path for file in others])
    unnamed = [file for file in others if file.path not in named]
    held: list[Stored] = []
    findings: list[Garbage] = []
    if unnamed and not Policies.parse(".".join(target.name()), target.properties).default.care_orphans:
        held, unnamed = unnamed, []
        reason = f"no metadata file of the table names or named them: another table's? {ORPHANS} = true deletes them"
        findings.append(_finding(target, held, reason, now_ms))
    try:
        if own or unnamed:
            check_alone(lake, target, listing.metadata_files)
    except RefusedError as error:
        refused = unnamed if isinstance(error, UnknownTableError) else [*own, *unnamed]
        if refused:
            held = [*held, *refused]
            findings.append(replace(_finding(target, refused, str(error), now_ms), exit_code=error.exit_code))
    return frozenset(file.path for file in held), findings


def _finding(target: Table, files: Sequence[Stored], reason: str, now_ms: int) -> Garbage:
    return Garbage.of_files(Kind.ORPHANS, target.location(), files, now_ms, goes=False, reason=reason)
