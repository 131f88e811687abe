"""Orphans: files below a table's location that nothing refers to, and that are old enough to be deleted.

The age matters because nothing refers yet to the new files of a writer that is about to commit. The default age is
three days, as in Iceberg's ``remove_orphan_files``.

Firn deletes old orphans that the table named at some time. Such files remain when another tool expires snapshots, or
when maintenance is interrupted. Firn also deletes old orphans in its own folders, by the rule of `job.collect`,
unless another table's files are at, above or below the table's location.

All other orphans may belong to a writer that died, to another table, or to this table when it was in another catalog.
Therefore they stay, unless the operator allows their deletion and no other table of the catalog can own them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind, delete
from firnlake.iceberg.files import JOB_ID, OWN_FOLDER, Stored, data_folder, metadata_folder, store
from firnlake.iceberg.referenced_files import Contents
from firnlake.job.collect import newer_snapshot, prune
from firnlake.job.documents import JobDocuments, documents_folder
from firnlake.maintain.listing import OF_AGE, ORPHAN_AGE_MS, Listing, UnknownTableError, check_alone, listed
from firnlake.maintain.unreached import named_once
from firnlake.table.history import plans_folder
from firnlake.table.policy import Policies
from firnlake.table.references import Unreferenced, known_files

_LIST: Final = re.compile(rf"\.?({JOB_ID})-")
"""The beginning of the name of a list of plans, and of its checksum file."""
_JOB: Final = re.compile(rf"/({JOB_ID})/")


class Places:
    """Finds the job and the folder that a file of a table belongs to, by the file's path on the store."""

    def __init__(self, target: Table) -> None:
        self._location = target.location().rstrip("/")
        self._metadata = metadata_folder(target).removesuffix(f"/{OWN_FOLDER}/{target.metadata.table_uuid}")
        self._lists = plans_folder(target)
        self._documents = documents_folder(target)
        self._data = data_folder(target)
        roots = (self._location, self._lists, self._documents, self._data)
        self._paths = {root: store(target, root)[1] for root in roots}

    def job_of(self, file: Stored) -> str | None:
        """The id of the Firn job that ``file`` belongs to, by its place in Firn's folders; None if it has no job."""
        folder, _, name = file.path.rpartition("/")
        if folder == self._paths[self._lists]:
            match = _LIST.match(name)
        else:
            root = next((one for one in (self._documents, self._data) if self._is_in(file, one)), None)
            match = _JOB.match(file.path, len(self._paths[root])) if root else None
        return match[1] if match else None

    def group(self, files: Iterable[Stored]) -> dict[tuple[Kind, str], list[Stored]]:
        """``files`` by kind and folder: the folder of their job or, without a job, their top-level folder."""
        grouped: dict[tuple[Kind, str], list[Stored]] = {}
        for file in files:
            grouped.setdefault(self._place(file), []).append(file)
        return grouped

    def is_metadata(self, folder: str) -> bool:
        """True when ``folder`` is that of the table's metadata files."""
        return folder == self._metadata

    def _place(self, file: Stored) -> tuple[Kind, str]:
        if job_id := self.job_of(file):
            if self._is_in(file, self._lists):
                return Kind.PLAN_LIST, self._lists
            return Kind.DATA, f"{self._documents if self._is_in(file, self._documents) else self._data}/{job_id}"
        within, slash, _ = file.path[len(self._paths[self._location]) :].lstrip("/").partition("/")
        return Kind.ORPHANS, f"{self._location}/{within}" if slash else self._location

    def _is_in(self, file: Stored, root: str) -> bool:
        return file.path.startswith(f"{self._paths[root]}/")


def held_back(
    lake: Lake,
    target: Table,
    places: Places,
    contents: Contents,
    listing: Listing,
    old: Sequence[Stored],
    now_ms: int,
) -> tuple[frozenset[str], list[Finding]]:
    """The paths of the ``old`` files that stay although nothing refers to them, and findings with the reasons."""
    own = [file for file in old if places.job_of(file)]
    others = [file for file in old if not places.job_of(file)]
    named = named_once(target, contents, [file.path for file in others])
    unnamed = [file for file in others if file.path not in named]
    held: list[Stored] = []
    findings: list[Finding] = []
    if unnamed and "orphans" not in Policies.parse(".".join(target.name()), target.properties).default.maintained:
        held, unnamed = unnamed, []
        reason = "the table's metadata never named them, so another table may own them"
        reason += "; orphans in firn.maintenance deletes them"
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


def _finding(target: Table, files: Sequence[Stored], reason: str, now_ms: int) -> Finding:
    return Finding.of_files(Kind.ORPHANS, target.location(), files, now_ms, goes=False, reason=reason)


def orphans(
    lake: Lake,
    identifier: str,
    now_ms: int,
    contents: Contents,
    *,
    remove: bool,
    everything: bool = True,
    former: Collection[str] = (),
) -> tuple[list[Finding], Listing]:
    """Findings about the files of table ``identifier`` that nothing refers to, by folder, and the listing of all files.

    ``remove`` deletes the files that are older than ``ORPHAN_AGE_MS`` at ``now_ms``, unless they
    belong to a job that has a stage, or may be another table's. Without ``everything``, only Firn's own folders
    are searched. ``former`` are locations of metadata files that stay, although the table's metadata log may have
    dropped them. Raises UnknownReferencesError if a manifest is gone.
    """
    target, known = known_files(lake, identifier, contents, former)
    listing = listed(target, known, everything=everything)
    # The documents are listed after the files, so that a stage is known if it was opened before its files were written.
    staged = JobDocuments.of_all(target)
    places = Places(target)
    candidates = [file for file in listing.unknown if places.job_of(file) not in staged]
    # The table is loaded after the files are listed, so that a file that is published in between counts as in use.
    unreferenced = Unreferenced((file.path for file in candidates), contents, listing.hashes)
    unreferenced.look(lake, identifier)
    candidates = [file for file in candidates if file.path in unreferenced]
    young = [file for file in candidates if not file.is_older(now_ms - ORPHAN_AGE_MS)]
    old = [file for file in candidates if file.is_older(now_ms - ORPHAN_AGE_MS)]
    held, reasons = held_back(lake, target, places, contents, listing, old, now_ms)
    old = [file for file in old if file.path not in held]
    if remove and old:
        if any(places.job_of(file) for file in old):
            # The rule of `job.collect`. A job without a stage can't be published, because a publisher that loaded the
            # stage earlier finds that its documents are gone. A new stage of the same job writes new files.
            newer_snapshot(lake, identifier)
        unreferenced.look(lake, identifier)
    going = [file for file in old if file.path in unreferenced]
    staying = [file for file in old if file.path not in unreferenced]
    limit = f"older than {OF_AGE}"
    return [
        *_not_looked_at(target),
        *reasons,
        *_deleted(target, places, going, f"unreferenced; {limit}", now_ms, remove=remove),
        *_staying(places, young, f"unreferenced, but not {limit}", now_ms),
        *_staying(places, staying, "in use again at the time of deletion", now_ms),
    ], listing


def _deleted(
    target: Table, places: Places, going: Iterable[Stored], reason: str, now_ms: int, *, remove: bool
) -> Iterator[Finding]:
    """Delete the files ``going``, data files first, and yield findings.

    As long as a data file can't be deleted, the metadata files stay, because only they show that the table named it.
    """
    grouped = places.group(going)
    failed = False
    for (kind, folder), own in sorted(grouped.items(), key=lambda one: (places.is_metadata(one[0][1]), one[0])):
        if failed and places.is_metadata(folder):
            yield Finding.of_files(kind, folder, own, now_ms, goes=False, reason="files that it names still exist")
            continue
        files, _ = store(target, folder)
        deleted = delete(((files, file) for file in own), remove=remove, title=f"deleting {kind}", total=len(own))
        failed = failed or bool(deleted.failures)
        yield from deleted.findings(kind, folder, reason, now_ms)
        if remove and kind is Kind.DATA:
            prune(target, folder)


def _staying(places: Places, files: Iterable[Stored], reason: str, now_ms: int) -> Iterator[Finding]:
    for (kind, folder), own in sorted(places.group(files).items()):
        yield Finding.of_files(kind, folder, own, now_ms, goes=False, reason=reason)


def _not_looked_at(target: Table) -> list[Finding]:
    root = data_folder(target)
    if root.startswith(f"{target.location().rstrip('/')}/"):
        return []
    reason = f"not searched: it is outside the table's location {target.location()} and may have files of other tables"
    return [Finding(Kind.DATA, root, goes=False, reason=reason, files=0)]
