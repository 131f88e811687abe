"""Maintenance of a table, part by part, and of Firn's home on this machine.

A dry run finds exactly what a run would remove. Each part checks again right before it deletes anything, so that
several maintenance runs, lane runs and other writers may work at the same time. If a run is interrupted, the next run
finishes its work.

Parts that commit come before the expiry of snapshots, because the new snapshot of a commit may allow the snapshot
before it to expire.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import MENDED, QUARANTINE, REMOVED_TOMBSTONES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored
from firnlake.iceberg.referenced_files import Contents, Hashes
from firnlake.job.collect import clear
from firnlake.job.documents import VERDICTS
from firnlake.job.stale import End, FoundStage, found_stages
from firnlake.lanes.erasure.certificate import certificates
from firnlake.maintain.expire import dropped, dropped_by, expire, former
from firnlake.maintain.listing import Listing
from firnlake.maintain.manifests import manifests_to_rewrite, rewrite_manifests
from firnlake.maintain.orphans import orphans
from firnlake.maintain.reports import KeepLimits, Works, old_plans, old_reports
from firnlake.maintain.side_branches import old_tombstones
from firnlake.maintain.unreached import Coming
from firnlake.table.policy import Policies
from firnlake.table.references import UnknownReferencesError, Unreferenced, is_in, metadata_locations, whole_table


class MaintenancePart(StrEnum):
    """A part of a table's maintenance."""

    STAGES = "stages"
    """Deletes staged results that nobody will publish."""
    SIDE_BRANCHES = "side branches"
    """Removes quarantined records and removed tombstones past their age limit."""
    MANIFESTS = "manifests"
    """Merges small manifests of data files."""
    ORPHANS = "orphans"
    """Deletes files that nothing refers to; lists all files of the table."""
    SNAPSHOTS = "snapshots"
    """Expires snapshots past their age, and deletes the files that only they reach."""
    CERTIFICATES = "certificates"
    """Issues certificates of erasures, once no file holds an erased record."""


GC_ENABLED: Final = "gc.enabled"
"""Iceberg's property that allows the deletion of a table's files."""

_WAY_OUT: Final = {
    QUARANTINE: "holds the only copies of quarantined records, until `firn quarantine --clear` removes these",
    MENDED: "holds what `firn mend` took from main, until somebody drops the branch and its snapshots expire",
}
"""Why the files of a side branch stay, and until when."""

ALL: Final = frozenset(MaintenancePart)
HOURLY: Final = frozenset({MaintenancePart.STAGES, MaintenancePart.SIDE_BRANCHES})
"""The parts that are cheap enough to run every hour."""


def maintain_table(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool, parts: Collection[MaintenancePart] = ALL
) -> list[Finding]:
    """Maintain table ``identifier`` and return the findings of the ``parts``; without ``remove``, change nothing.

    A file that a kept snapshot, branch or tag refers to is never deleted (C29). Raises RefusedError for an unknown
    table or a wrong limit, UnavailableError when catalog or store do not answer. All files that were deleted before an
    error were garbage.
    """
    with lake.answering():
        table = whole_table(lake, identifier)
        return _Maintenance(lake, identifier, now_ms, remove, table, Contents(table.io)).parts(parts)


def maintain_home(lake: Lake, now_ms: int, *, remove: bool, works: Works | None = None) -> list[Finding]:
    """Findings about plan files and reports of all tables in the home of ``lake``; ``remove`` deletes garbage.

    ``works`` says whether the scheduler run that holds a table's lease is still active; without it, every such run
    counts as active. Raises RefusedError for a wrong limit.
    """
    plans, reports = KeepLimits.of_plans(), KeepLimits.of_reports()
    return [
        *old_plans(lake, plans, now_ms, remove=remove, works=works),
        *old_reports(lake, reports, now_ms, remove=remove),
    ]


@dataclass
class _Maintenance:
    """One maintenance run of a table; ``table`` is the table as it was at the beginning."""

    lake: Lake
    identifier: str
    now_ms: int
    remove: bool
    table: Table
    contents: Contents
    moving: list[str] = field(default_factory=list)
    """The branch of each snapshot that the run has added so far, or would add; each commit adds a snapshot to main."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """Locations of the files that the run removes from side branches, by branch."""
    rewritten: Collection[str] = ()
    """In a dry run, the locations of the manifests that a run would replace before snapshots expire."""

    def parts(self, parts: Collection[MaintenancePart]) -> list[Finding]:
        """Findings of the ``parts``, in their order."""
        maintained = Policies.parse(self.identifier, self.table.properties).default.maintained
        garbage: list[Finding] = []
        if MaintenancePart.STAGES in parts:
            try:
                garbage += self._stages()
            except UnknownReferencesError as error:
                # The snapshot whose manifest is gone may expire in this run, so the next run may succeed.
                garbage.append(Finding.of_error(Kind.STAGE, self.identifier, error))
        if MaintenancePart.SIDE_BRANCHES in parts:
            garbage += self._side_branches()
        if MaintenancePart.MANIFESTS in parts and "manifests" in maintained:
            garbage += self._manifests()
        listing = None
        if MaintenancePart.ORPHANS in parts:
            everything = bool(maintained & {"snapshots", "orphans"})
            own, listing = self._orphans(everything)
            garbage += own if everything else [*own, self._left_to_its_owner()]
        after, expiries = None, 0
        if MaintenancePart.SNAPSHOTS in parts and "snapshots" in maintained:
            own, after = self._snapshots()
            garbage += own
            expiries = int(any(one.goes and one.kind in (Kind.SNAPSHOTS, Kind.REF) for one in own))
        if listing and not listing.own_only:
            garbage += self._former(expiries)
        if MaintenancePart.CERTIFICATES in parts:
            garbage += certificates(self.lake, self.identifier, self.now_ms, issue=self.remove)
        return [*garbage, *self._held(listing, after)]

    def _stages(self) -> list[Finding]:
        """Findings about every stage of the table; with ``remove``, stale stages are deleted."""
        stages = found_stages(self.lake, self.identifier, now_ms=self.now_ms)
        files = {one.identifier: one.files for one in stages}
        going = _going(self.lake, self.identifier, stages, files)
        if any(going.get(one.identifier) and VERDICTS in one.documents.kinds for one in stages):
            self.moving.append(MAIN_BRANCH)
        garbage = [_finding(one, going.get(one.identifier, files[one.identifier]), self.now_ms) for one in stages]
        kept = clear(self.lake, self.identifier, stages).kept if self.remove else {}
        return [replace(one, goes=False, reason=kept[one.name]) if one.name in kept else one for one in garbage]

    def _side_branches(self) -> list[Finding]:
        garbage, lost = old_tombstones(self.lake, self.identifier, self.now_ms, remove=self.remove)
        if lost:
            self.lost[REMOVED_TOMBSTONES] = lost
            self.moving += [MAIN_BRANCH, REMOVED_TOMBSTONES]
        return garbage

    def _manifests(self) -> list[Finding]:
        garbage = rewrite_manifests(self.lake, self.identifier, self.now_ms, remove=self.remove)
        if any(one.goes for one in garbage):
            self.moving.append(MAIN_BRANCH)
            if not self.remove:
                self.rewritten = manifests_to_rewrite(self.lake.table(self.identifier), self.identifier)
        return garbage

    def _orphans(self, everything: bool) -> tuple[list[Finding], Listing | None]:
        findings: list[Finding] = []
        if everything and (disabled := self._disabled(Kind.ORPHANS)):
            everything = False
            findings.append(disabled)
        try:
            own, listing = orphans(
                self.lake,
                self.identifier,
                self.now_ms,
                self.contents,
                remove=self.remove,
                everything=everything,
                former=metadata_locations(self.table),
            )
        except UnknownReferencesError as error:
            return [*findings, Finding.of_error(Kind.ORPHANS, self.identifier, error)], None
        if any(one.goes and one.kind in (Kind.DATA, Kind.PLAN_LIST) for one in own):
            self.moving.append(MAIN_BRANCH)
        return [*findings, *own], listing

    def _snapshots(self) -> tuple[list[Finding], TableMetadata | None]:
        if disabled := self._disabled(Kind.SNAPSHOTS):
            return [disabled], None
        coming = Coming() if self.remove else Coming(self.moving, self.lost, self.rewritten)
        done = expire(self.lake, self.identifier, self.now_ms, self.contents, coming, remove=self.remove)
        return done.findings, done.after

    def _former(self, expiries: int) -> Iterator[Finding]:
        if self.remove:
            locations = dropped(self.table, self.lake.table(self.identifier))
        else:
            locations = dropped_by(self.table, self.moving.count(MAIN_BRANCH) + expiries)
        return former(self.table, locations, self.now_ms, remove=self.remove)

    def _held(self, listing: Listing | None, after: TableMetadata | None) -> Iterator[Finding]:
        """Findings about the files that main no longer needs: those of each branch or tag, and the rest.

        ``after`` is the metadata after the expiry of snapshots; None if nothing could expire.
        """
        if listing is None:
            return
        metadata = after or self.table.metadata
        files, sizes = listing.beside_main
        for name, ref in metadata.refs.items():
            if name == MAIN_BRANCH or not len(files):
                continue
            here = is_in(files, self._reached(filter(None, [metadata.snapshot_by_id(ref.snapshot_id)])))
            # The findings about side branches list removed tombstones, with their limit.
            if here.any() and name != REMOVED_TOMBSTONES:
                needed = f"readers of this {ref.snapshot_ref_type.value} need these files, until somebody drops it"
                yield _kept(Kind.REF, name, sizes[here], _WAY_OUT.get(name, needed))
            files, sizes = files[~here], sizes[~here]
        if after and len(files):
            sizes = sizes[is_in(files, self._reached(after.snapshots))]
        if len(sizes):
            until = (
                "until these snapshots expire (history.expire.*)"
                if after
                else "and Firn expires no snapshots here (firn.maintenance, gc.enabled)"
            )
            reason = f"only past snapshots refer to them, {until}"
            yield _kept(Kind.DATA, self.table.location(), sizes, reason)

    def _reached(self, snapshots: Iterable[Snapshot]) -> Hashes:
        """Hashes of the paths of the files of ``snapshots``, sorted; none of a snapshot that has just expired."""
        gone: list[str] = []
        return np.unique(self.contents.reach_of(self.contents.manifests_of(snapshots, gone), gone).paths)

    def _left_to_its_owner(self) -> Finding:
        reason = "firn.maintenance leaves them to the table's owner, so only Firn's own files were looked at"
        if MENDED in self.table.metadata.refs:
            reason += f"; `firn mend {self.identifier} --list` tells what branch {MENDED} keeps"
        return Finding(Kind.ORPHANS, "all other files", goes=False, reason=reason, files=0)

    def _disabled(self, kind: Kind) -> Finding | None:
        """A finding if Iceberg's own property forbids the deletion of the table's files; otherwise None."""
        text = self.table.properties.get(GC_ENABLED, "true")
        if text.strip().lower() != "false":
            return None
        reason = f"property {GC_ENABLED} is {text}, so another table may use the files; allowed: true"
        return Finding(kind, self.identifier, goes=False, reason=reason, files=0)


def _kept(kind: Kind, name: str, sizes: Hashes, reason: str) -> Finding:
    return Finding(kind, name, goes=False, reason=reason, files=len(sizes), bytes=int(sizes.sum()))


def _going(
    lake: Lake, identifier: str, stages: list[FoundStage], files: Mapping[str, list[Stored]]
) -> Mapping[str, list[Stored]]:
    """The files to delete, by stage; files of published stages, to which the table refers, are left out."""
    ending = [one.identifier for one in stages if one.end is End.DISCARD]
    unreferenced = Unreferenced(file.path for name in ending for file in files[name])
    if unreferenced:
        unreferenced.look(lake, identifier)
    return {name: [file for file in files[name] if file.path in unreferenced] for name in ending}


def _finding(one: FoundStage, files: list[Stored], now_ms: int) -> Finding:
    goes = one.end not in (End.STAY, End.UNKNOWN)
    garbage = Finding.of_files(Kind.STAGE, one.identifier, files, now_ms, goes=goes, reason=one.reason)
    # The age of a stage is that of its first document, whatever the age of its files.
    written_ms = one.documents.written_ms
    return replace(garbage, age_ms=None if written_ms is None else now_ms - written_ms)
