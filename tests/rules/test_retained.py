"""Retention of snapshots, branches and tags by Iceberg's rules, against a plain model of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import MAX_SNAPSHOT_AGE
from firnlake.maintain.expire import MAX_REF_AGE, MIN_SNAPSHOTS, retained

NOW = 1_000_000
DAYS_5 = 432_000_000


def metadata(snapshots: Sequence[tuple[int, int | None, int]], refs: Mapping[str, dict[str, Any]]) -> TableMetadata:
    """Metadata with ``snapshots`` of (id, parent, age), and ``refs`` in the form of the REST catalog."""
    empty = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})
    assert isinstance(empty, TableMetadataV2)
    found = [
        Snapshot.model_validate(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": place + 1,
                "timestamp-ms": NOW - age,
                "manifest-list": f"file:///t/metadata/snap-{snapshot_id}.avro",
            }
        )
        for place, (snapshot_id, parent, age) in enumerate(snapshots)
    ]
    named = {name: SnapshotRef.model_validate(ref) for name, ref in refs.items()}
    return empty.model_copy(update={"snapshots": found, "refs": named})


def branch(snapshot_id: int, **limits: int) -> dict[str, Any]:
    own = {name.replace("_", "-"): value for name, value in limits.items()}
    return {"snapshot-id": snapshot_id, "type": "branch"} | own


def tag(snapshot_id: int, **limits: int) -> dict[str, Any]:
    return branch(snapshot_id, **limits) | {"type": "tag"}


CHAIN = [(1, None, DAYS_5 + 3), (2, 1, DAYS_5 + 2), (3, 2, DAYS_5 + 1), (4, 3, DAYS_5), (5, 4, 0)]


def test_c20_a_history_that_leads_back_to_itself_ends() -> None:
    found = metadata([(1, 2, 0), (2, 1, 0)], {MAIN_BRANCH: branch(2)})
    assert retained("lake.t", found, NOW).snapshots == {1, 2}


@pytest.mark.parametrize(
    ("refs", "properties", "later", "stays"),
    [
        ({}, {}, 0, [4, 5]),
        ({}, {}, 10 * DAYS_5, [5]),
        ({}, {MIN_SNAPSHOTS: "4"}, 0, [2, 3, 4, 5]),
        ({MAIN_BRANCH: branch(5, max_snapshot_age_ms=2 * DAYS_5, min_snapshots_to_keep=1)}, {}, 0, [1, 2, 3, 4, 5]),
        ({MAIN_BRANCH: branch(5, max_snapshot_age_ms=1)}, {}, 0, [5]),
        ({MAIN_BRANCH: branch(5, max_ref_age_ms=1)}, {}, 10 * DAYS_5, [5]),
        ({"audit": tag(2)}, {}, 0, [2, 4, 5]),
        ({"audit": tag(2, max_ref_age_ms=DAYS_5 + 2)}, {}, 0, [2, 4, 5]),
    ],
    ids=["five days", "the head for ever", "at least so many", "a branch's own limits win", "the shorter one too",
         "main never expires", "a tag holds its snapshot and nothing below", "a tag of just its age stays"],
)  # fmt: skip
def test_c29_what_stays(refs: dict[str, Any], properties: dict[str, str], later: int, stays: list[int]) -> None:
    found = metadata(CHAIN, {MAIN_BRANCH: branch(5)} | refs).model_copy(update={"properties": properties})
    told = retained("lake.t", found, NOW + later)
    assert (sorted(told.snapshots), dict(told.expired_refs)) == (stays, {})


@pytest.mark.parametrize(
    ("audit", "why"), [(tag(2, max_ref_age_ms=7), f"{MAX_REF_AGE} = 7"), (tag(77), "its snapshot")]
)
def test_a_tag_past_its_age_goes_with_its_snapshot_and_so_does_one_without(audit: dict[str, Any], why: str) -> None:
    found = retained("lake.t", metadata(CHAIN, {MAIN_BRANCH: branch(5), "audit": audit}), NOW)
    assert why in found.expired_refs["audit"]
    assert sorted(found.snapshots) == [4, 5]


def test_what_no_branch_reaches_stays_while_it_is_young() -> None:
    staged = metadata([*CHAIN, (6, 4, 10)], {MAIN_BRANCH: branch(5)})
    assert sorted(retained("lake.t", staged, NOW).snapshots) == [4, 5, 6]
    assert retained("lake.t", staged, NOW + DAYS_5).expired_snapshots[6].startswith("no branch or tag reaches it")


def test_c29_what_is_below_one_that_goes_goes_as_well_whatever_its_clock_said() -> None:
    found = metadata([(1, None, 0), (2, 1, DAYS_5 + 1), (3, 2, 0)], {MAIN_BRANCH: branch(3)})
    assert retained("lake.t", found, NOW).snapshots == {3}


@pytest.mark.parametrize("name", [MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, MAX_REF_AGE])
@pytest.mark.parametrize("value", ["", "-1", "5d", "1.5", "9" * 30])
def test_c26_limits_that_are_no_numbers_are_refused(name: str, value: str) -> None:
    found = metadata(CHAIN, {MAIN_BRANCH: branch(5)}).model_copy(update={"properties": {name: value}})
    with pytest.raises(RefusedError, match=f"property {name} is '{value}'; allowed: a whole number"):
        retained("lake.t", found, NOW)


YOUNG = [(1, None, 3), (2, 1, 2), (3, 2, 1), (4, 3, 0)]


@pytest.mark.parametrize(
    ("refs", "erased_below", "goes"),
    [
        ({MAIN_BRANCH: branch(4, min_snapshots_to_keep=9)}, 3, {1, 2}),
        ({MAIN_BRANCH: branch(4), "firn_quarantine": branch(1)}, 9, {2, 3}),
        ({MAIN_BRANCH: branch(4), "t": tag(1)}, 4, {2, 3}),
        ({MAIN_BRANCH: branch(4), "theirs": branch(2)}, 4, {3}),
        ({MAIN_BRANCH: branch(2)}, 9, {1}),
    ],
    ids=["whatever its age", "but heads", "but what a tag keeps", "or another branch", "or what is on no branch"],
)
def test_c30_what_is_from_before_keys_were_erased_goes(refs: dict[str, Any], erased_below: int, goes: set[int]) -> None:
    """From main and Firn's branches."""
    found = retained("lake.t", metadata(YOUNG, refs), NOW, erased_below=erased_below).expired_snapshots
    assert found.keys() == goes
    assert set(found.values()) == {"on branch main, from before keys were erased (firn.erase.history = expire)"}
