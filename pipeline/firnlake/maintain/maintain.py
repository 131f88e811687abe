"""Maintenance of a table, part by part, and of Firn's home on this machine.

A dry run finds exactly what a run removes. Each part looks again right before it deletes, so several maintenance runs,
lane runs and other writers may work at the same time; the next run resumes an interrupted one.

Parts that commit come before the expiry of snapshots: an empty snapshot on a quiet table makes the one before it old
enough to go.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.iceberg.files import Stored
from firnlake.iceberg.referenced_files import Contents
from firnlake.job.collect import clear
from firnlake.job.stage import VERDICTS
from firnlake.job.stale import End, FoundStage, found_stages
from firnlake.lanes.erasure.certify import certificates
from firnlake.maintain.expire import dropped, dropped_by, expire, former
from firnlake.maintain.listing import Listing
from firnlake.maintain.manifests import manifests_to_rewrite, rewrite_manifests
from firnlake.maintain.orphans import orphans
from firnlake.maintain.reports import KeepLimits, Works, old_plans, old_reports
from firnlake.maintain.side_branches import old_on_branches
from firnlake.maintain.unreached import Coming
from firnlake.table.policies import Policies
from firnlake.table.references import UnknownReferencesError, Unreferenced, is_in, metadata_locations, whole_table


class MaintenancePart(StrEnum):
    """A part of a table's maintenance."""

    STAGES = "stages"
    """Results that nobody will publish."""
    SIDE_BRANCHES = "side branches"
    """Quarantined records and removed tombstones past their limit."""
    MANIFESTS = "manifests"
    """Many small manifests become few."""
    ORPHANS = "orphans"
    """Files that nothing reaches; lists all files of the table."""
    SNAPSHOTS = "snapshots"
    """Snapshots past their age, and the files that only they reach."""
    CERTIFICATES = "certificates"
    """Certificates of erasures, once no file holds what was erased."""


GC_ENABLED: Final = "gc.enabled"
"""Iceberg's property that allows to delete a table's files."""

ALL: Final = frozenset(MaintenancePart)
HOURLY: Final = frozenset({MaintenancePart.STAGES, MaintenancePart.SIDE_BRANCHES})
"""The parts that cost little."""


def maintain_table(
    lake: Lake, identifier: str, now_ms: int, *, remove: bool, parts: Collection[MaintenancePart] = ALL
) -> list[Finding]:
    """Findings of the ``parts`` about table ``identifier``: already removed with ``remove``, otherwise only listed.

    Files that a kept snapshot, branch or tag refers to never go (C29). Raises RefusedError for an unknown table or a
    wrong limit, UnavailableError when catalog or store do not answer; whatever was removed by then was garbage.
    """
    with lake.answering():
        table = whole_table(lake, identifier)
        return _Maintenance(lake, identifier, now_ms, remove, table, Contents(table.io)).parts(parts)


def maintain_home(lake: Lake, now_ms: int, *, remove: bool, works: Works | None = None) -> list[Finding]:
    """Garbage in the home of ``lake``: plan files and reports, of all tables.

    ``works`` says whether the scheduler run that holds a table's lease is still active; without it every such run
    counts as active. Raises RefusedError for a wrong limit.
    """
    plans, reports = KeepLimits.of_plans(), KeepLimits.of_reports()
    return [
        *old_plans(lake, plans, now_ms, remove=remove, works=works),
        *old_reports(lake, reports, now_ms, remove=remove),
    ]


@dataclass
class _Maintenance:
    """One round of maintenance of a table, which is ``table`` as it was loaded first."""

    lake: Lake
    identifier: str
    now_ms: int
    remove: bool
    table: Table
    contents: Contents
    moving: list[str] = field(default_factory=list)
    """The branch of each snapshot that is added when what was found so far is removed; each commit adds one to main."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """Locations of the files that leave side branches then, by branch."""
    rewritten: Collection[str] = ()
    """Locations of the manifests that others would have replaced by now."""

    def parts(self, parts: Collection[MaintenancePart]) -> list[Finding]:
        """Findings of the ``parts``, in their order."""
        policy = Policies.parse(self.identifier, self.table.properties).default
        enabled = policy.maintenance_enabled
        garbage: list[Finding] = []
        if MaintenancePart.STAGES in parts:
            try:
                garbage += self._stages()
            except UnknownReferencesError as error:
                # The snapshot may be about to expire: the next round can tell.
                garbage.append(Finding.of_error(Kind.STAGE, self.identifier, error))
        if MaintenancePart.SIDE_BRANCHES in parts:
            garbage += self._side_branches()
        if MaintenancePart.MANIFESTS in parts and enabled and policy.maintenance_manifests:
            garbage += self._manifests()
        listing = None
        if MaintenancePart.ORPHANS in parts:
            own, listing = self._orphans(enabled)
            garbage += own
        after, expiries = None, 0
        if MaintenancePart.SNAPSHOTS in parts and enabled and policy.maintenance_snapshots:
            own, after = self._snapshots()
            garbage += own
            expiries = int(any(one.goes and one.kind in (Kind.SNAPSHOTS, Kind.REF) for one in own))
        if listing and not listing.own_only:
            garbage += self._former(expiries, policy.maintenance_orphans_age_ms)
        if MaintenancePart.CERTIFICATES in parts:
            garbage += certificates(self.lake, self.identifier, self.now_ms, issue=self.remove)
        return [*garbage, *self._held(listing, after)]

    def _stages(self) -> list[Finding]:
        """Every stage of the table; with ``remove``, stale ones are deleted."""
        stages = found_stages(self.lake, self.identifier, now_ms=self.now_ms)
        files = {one.identifier: one.files for one in stages}
        going = _going(self.lake, self.identifier, stages, files)
        if any(going.get(one.identifier) and VERDICTS in one.documents.kinds for one in stages):
            self.moving.append(MAIN_BRANCH)
        garbage = [_finding(one, going.get(one.identifier, files[one.identifier]), self.now_ms) for one in stages]
        kept = clear(self.lake, self.identifier, stages).kept if self.remove else {}
        return [replace(one, goes=False, reason=kept[one.name]) if one.name in kept else one for one in garbage]

    def _side_branches(self) -> list[Finding]:
        garbage, self.lost = old_on_branches(self.lake, self.identifier, self.now_ms, remove=self.remove)
        for branch in self.lost:
            self.moving += [MAIN_BRANCH, branch]
        return garbage

    def _manifests(self) -> list[Finding]:
        if not self.remove:
            self.rewritten = manifests_to_rewrite(self.lake.table(self.identifier), self.identifier)
        garbage = rewrite_manifests(self.lake, self.identifier, self.now_ms, remove=self.remove)
        if any(one.goes for one in garbage):
            self.moving.append(MAIN_BRANCH)
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

    def _former(self, expiries: int, limit_ms: int) -> Iterator[Finding]:
        if self.remove:
            locations = dropped(self.table, self.lake.table(self.identifier))
        else:
            locations = dropped_by(self.table, self.moving.count(MAIN_BRANCH) + expiries)
        return former(self.table, locations, limit_ms, self.now_ms, remove=self.remove)

    def _held(self, listing: Listing | None, after: TableMetadata | None) -> Iterator[Finding]:
        """Files that only past snapshots of the metadata ``after`` the expiry hold; None: nothing expired."""
        if listing is None:
            return
        past, sizes = listing.past
        if after and len(past):
            kept = self.contents.reach_of(self.contents.manifests_of(after.snapshots))
            sizes = sizes[is_in(past, np.unique(kept.paths))]
        if len(sizes):
            reason = "only past snapshots refer to them; they go once those are expired (history.expire.*)"
            name, size = self.table.location(), int(sizes.sum())
            yield Finding(Kind.DATA, name, goes=False, reason=reason, files=len(sizes), bytes=size)

    def _disabled(self, kind: Kind) -> Finding | None:
        """A finding where Iceberg's own property forbids to delete the table's files."""
        text = self.table.properties.get(GC_ENABLED, "true")
        if text.strip().lower() != "false":
            return None
        reason = f"GC is disabled: property {GC_ENABLED} is {text}, as another table may use the files; allowed: true"
        return Finding(kind, self.identifier, goes=False, reason=reason, files=0)


def _going(
    lake: Lake, identifier: str, stages: list[FoundStage], files: Mapping[str, list[Stored]]
) -> Mapping[str, list[Stored]]:
    """Files that go with their stages: a stage may have been published without being deleted."""
    ending = [one.identifier for one in stages if one.end in (End.DISCARD, End.SHELVE)]
    unreferenced = Unreferenced(file.path for name in ending for file in files[name])
    if unreferenced:
        unreferenced.look(lake, identifier)
    return {name: [file for file in files[name] if file.path in unreferenced] for name in ending}


def _finding(one: FoundStage, files: list[Stored], now_ms: int) -> Finding:
    goes = one.end not in (End.STAY, End.UNKNOWN)
    reason = f"only its marker stays: it {one.reason}" if one.end is End.SHELVE else one.reason
    garbage = Finding.of_files(Kind.STAGE, one.identifier, files, now_ms, goes=goes, reason=reason)
    # A stage is as old as its first document, whatever the age of its files.
    written_ms = one.documents.written_ms
    return replace(garbage, age_ms=None if written_ms is None else now_ms - written_ms)
