"""Orphans: files below a table's location that nothing refers to, and that are old enough to go.

Those that the table named before go: another tool expired their snapshots, or care was interrupted. So do those in
Firn's own folders, by the rule of ``jobs``. ``unnamed`` decides about all others. A writer in mid-commit has files that
nothing refers to yet, so age tells; its default is that of Iceberg's ``remove_orphan_files``, three days.
"""

from collections.abc import Collection, Iterable, Iterator

from pyiceberg.table import Table

from pipeline.care.contents import Contents
from pipeline.care.delete import delete
from pipeline.care.garbage import Garbage, Kind
from pipeline.care.jobs import newer_snapshot, prune
from pipeline.care.listing import Listing, listed
from pipeline.care.places import Places
from pipeline.care.references import Unreferenced, known_files
from pipeline.care.unnamed import held_back
from pipeline.lake import Lake
from pipeline.lake.folders import Stored, data_folder, store
from pipeline.lake.job_documents import JobDocuments
from pipeline.policy import Policies


def orphans(
    lake: Lake,
    identifier: str,
    now_ms: int,
    contents: Contents,
    *,
    remove: bool,
    everything: bool = True,
    former: Collection[str] = (),
) -> tuple[list[Garbage], Listing]:
    """Files of table ``identifier`` that nothing refers to, by folder, and the listing; with ``remove`` they are gone.

    They go when they are older than ``firn.care.orphans.age.ms`` by ``now_ms``, unless they belong to a job that has a
    stage, or may be another table's. Without ``everything`` only Firn's own folders are searched. ``former`` are
    locations of metadata files that stay although the table's log may have dropped them. Raises UnknownReferencesError
    where a manifest is gone.
    """
    target, known = known_files(lake, identifier, contents, former)
    listing = listed(target, known, everything=everything)
    # Documents after the files, so that a stage is known that was opened before they were written.
    staged = JobDocuments.of_all(target)
    places = Places(target)
    candidates = [file for file in listing.unknown if places.job_of(file) not in staged]
    # The table after the files, so that one is known that is published in between.
    unreferenced = Unreferenced((file.path for file in candidates), contents, listing.hashes)
    unreferenced.look(lake, identifier)
    candidates = [file for file in candidates if file.path in unreferenced]
    limit_ms = Policies.parse(identifier, target.properties).default.care_orphans_age_ms
    young = [file for file in candidates if not file.is_older(now_ms - limit_ms)]
    old = [file for file in candidates if file.is_older(now_ms - limit_ms)]
    held, reasons = held_back(lake, target, places, contents, listing, old, now_ms)
    old = [file for file in old if file.path not in held]
    if remove and old:
        if any(places.job_of(file) for file in old):
            # The rule of ``jobs``. A job without a stage can't be published: a publisher that loaded it before finds
            # its documents gone. A new stage of the same job writes files of its own.
            newer_snapshot(lake, identifier)
        unreferenced.look(lake, identifier)
    going = [file for file in old if file.path in unreferenced]
    staying = [file for file in old if file.path not in unreferenced]
    limit = f"older than firn.care.orphans.age.ms = {limit_ms}"
    return [
        *_not_looked_at(target),
        *reasons,
        *_deleted(target, places, going, f"nothing refers to them; {limit}", now_ms, remove=remove),
        *_staying(places, young, f"nothing refers to them; not {limit}", now_ms),
        *_staying(places, staying, "they were in use again when they were to be deleted", now_ms),
    ], listing


def _deleted(
    target: Table, places: Places, going: Iterable[Stored], reason: str, now_ms: int, *, remove: bool
) -> Iterator[Garbage]:
    """Data files first: as long as one can't be deleted, the metadata stay that tell that the table has named it."""
    grouped = places.group(going)
    failed = False
    for (kind, folder), own in sorted(grouped.items(), key=lambda one: (places.is_metadata(one[0][1]), one[0])):
        if failed and places.is_metadata(folder):
            yield Garbage.of_files(kind, folder, own, now_ms, goes=False, reason="files that they name are still there")
            continue
        files, _ = store(target, folder)
        deleted = delete(((files, file) for file in own), remove=remove, title=f"deleting {kind}", total=len(own))
        failed = failed or bool(deleted.failures)
        yield from deleted.findings(kind, folder, reason, now_ms)
        if remove and kind is Kind.DATA:
            prune(target, folder)


def _staying(places: Places, files: Iterable[Stored], reason: str, now_ms: int) -> Iterator[Garbage]:
    for (kind, folder), own in sorted(places.group(files).items()):
        yield Garbage.of_files(kind, folder, own, now_ms, goes=False, reason=reason)


def _not_looked_at(target: Table) -> list[Garbage]:
    root = data_folder(target)
    if root.startswith(f"{target.location().rstrip('/')}/"):
        return []
    reason = f"not looked at: it is outside the table's location {target.location()} and may hold files of other tables"
    return [Garbage(Kind.DATA, root, goes=False, reason=reason, files=0)]
