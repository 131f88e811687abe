"""Orphans: files below a table's location that nothing refers to.

They come from snapshots that other tools expired, from writers that died or outlived their job, and from lost commits.
Firn's own go by the rule of ``jobs``. Those of other writers are told by their age alone: a writer in mid-commit has
files that nothing refers to yet. So does Iceberg's ``remove_orphan_files``, whose default age is also three days.
"""

from collections.abc import Collection, Iterable

from pyiceberg.table import Table

from pipeline.care.contents import Contents
from pipeline.care.delete import delete
from pipeline.care.garbage import Garbage, Kind
from pipeline.care.jobs import newer_snapshot, prune
from pipeline.care.listing import Listing, listed
from pipeline.care.references import Unreferenced, known_files
from pipeline.care.shared import check_alone
from pipeline.errors import RefusedError
from pipeline.history.published_plans import commits_folder
from pipeline.lake import Lake
from pipeline.lake.folders import Stored, data_folder, job_of, store
from pipeline.lake.job_documents import JobDocuments, documents_folder
from pipeline.lake.paths import name_of
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
    stage. Without ``everything`` only Firn's own folders are searched. ``former`` are locations of metadata files that
    stay although the table's log may have dropped them. Raises UnknownReferencesError where a manifest is gone.
    """
    target, known = known_files(lake, identifier, contents, former)
    listing = listed(target, known, everything=everything)
    # Documents after the files, so that a stage is known that was opened before they were written.
    staged = JobDocuments.of_all(target)
    findings = _not_looked_at(target)
    if everything:
        try:
            check_alone(lake, target, listing.metadata_files)
        except RefusedError as error:
            return [*findings, Garbage.of_error(Kind.ORPHANS, target.location(), error)], listing
    places = _Places(target)
    candidates = [file for file in listing.unknown if places.job_of(file) not in staged]
    # The table after the files, so that one is known that is published in between.
    unreferenced = Unreferenced((file.path for file in candidates), contents, listing.hashes)
    unreferenced.look(lake, identifier)
    candidates = [file for file in candidates if file.path in unreferenced]
    limit_ms = Policies.parse(identifier, target.properties).default.care_orphans_age_ms
    old = [file for file in candidates if file.is_older(now_ms - limit_ms)]
    young = [file for file in candidates if not file.is_older(now_ms - limit_ms)]
    if remove and old:
        if any(places.job_of(file) for file in old):
            # The rule of ``jobs``. A job without a stage can't be published: a publisher that loaded it before finds
            # its documents gone. A new stage of the same job writes files of its own.
            newer_snapshot(lake, identifier)
        unreferenced.look(lake, identifier)
    going = [file for file in old if file.path in unreferenced]
    staying = [file for file in old if file.path not in unreferenced]
    limit = f"older than firn.care.orphans.age.ms = {limit_ms}"
    for (kind, folder), own in places.group(going).items():
        files, _ = store(target, folder)
        deleted = delete(((files, file) for file in own), remove=remove, title=f"deleting {kind}", total=len(own))
        findings += deleted.findings(kind, folder, f"nothing refers to them; {limit}", now_ms)
        if remove and kind is Kind.DATA:
            prune(target, folder)
    for some, reason in (
        (young, f"nothing refers to them; not {limit}"),
        (staying, "they were in use again when they were to be deleted"),
    ):
        for (kind, folder), own in places.group(some).items():
            findings.append(Garbage.of_files(kind, folder, own, now_ms, goes=False, reason=reason))
    return findings, listing


class _Places:
    """Tells where files of a table lie, by their paths on the store."""

    def __init__(self, target: Table) -> None:
        self._location = target.location().rstrip("/")
        self._lists = commits_folder(target)
        self._documents = documents_folder(target)
        self._data = data_folder(target)
        self._paths = {root: store(target, root)[1] for root in (self._location, self._lists, self._documents)}

    def job_of(self, file: Stored) -> str | None:
        """Firn's job that ``file`` belongs to: its folder's, or the first part of the name of a list of plans."""
        return name_of(file.path).partition("-")[0] if self._is_list(file) else job_of(file.path)

    def group(self, files: Iterable[Stored]) -> dict[tuple[Kind, str], list[Stored]]:
        """``files`` by kind and folder: that of their job, else the part of the table's location that they lie in."""
        grouped: dict[tuple[Kind, str], list[Stored]] = {}
        for file in files:
            grouped.setdefault(self._place(file), []).append(file)
        return grouped

    def _place(self, file: Stored) -> tuple[Kind, str]:
        if self._is_list(file):
            return Kind.PLAN_LIST, self._lists
        if job_id := job_of(file.path):
            root = self._documents if file.path.startswith(f"{self._paths[self._documents]}/") else self._data
            return Kind.DATA, f"{root}/{job_id}"
        within, slash, _ = file.path[len(self._paths[self._location]) :].lstrip("/").partition("/")
        return Kind.ORPHANS, f"{self._location}/{within}" if slash else self._location

    def _is_list(self, file: Stored) -> bool:
        return file.path.rpartition("/")[0] == self._paths[self._lists]


def _not_looked_at(target: Table) -> list[Garbage]:
    root = data_folder(target)
    if root.startswith(f"{target.location().rstrip('/')}/"):
        return []
    reason = f"not looked at: it is outside the table's location {target.location()} and may hold files of other tables"
    return [Garbage(Kind.DATA, root, goes=False, reason=reason, files=0)]
