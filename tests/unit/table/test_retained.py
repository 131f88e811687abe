"""Retention of snapshots, branches and tags by Iceberg's rules, against a plain model of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from firnlake.errors import RefusedError
from firnlake.iceberg.snapshots import MAX_REF_AGE, MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, retained

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


def kept(found: TableMetadata, now_ms: int = NOW, moving: Sequence[str] = ()) -> list[int]:
    return sorted(retained("lake.t", found, now_ms, moving).snapshots)


CHAIN = [(1, None, DAYS_5 + 3), (2, 1, DAYS_5 + 2), (3, 2, DAYS_5 + 1), (4, 3, DAYS_5), (5, 4, 0)]


def test_by_default_five_days_stay_and_the_head_for_ever() -> None:
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5)})) == [4, 5]
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5)}), NOW + 10 * DAYS_5) == [5]


def test_at_least_as_many_snapshots_stay_as_the_property_says() -> None:
    found = metadata(CHAIN, {MAIN_BRANCH: branch(5)}).model_copy(update={"properties": {MIN_SNAPSHOTS: "4"}})
    assert kept(found) == [2, 3, 4, 5]


def test_a_branchs_own_limits_win() -> None:
    limits = {"max_snapshot_age_ms": 2 * DAYS_5, "min_snapshots_to_keep": 1}
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5, **limits)})) == [1, 2, 3, 4, 5]
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5, max_snapshot_age_ms=1)})) == [5]


def test_a_tag_holds_its_snapshot_and_nothing_below() -> None:
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5), "audit": tag(2)})) == [2, 4, 5]


def test_a_tag_past_its_age_goes_with_its_snapshot() -> None:
    found = retained("lake.t", metadata(CHAIN, {MAIN_BRANCH: branch(5), "audit": tag(2, max_ref_age_ms=7)}), NOW)
    assert list(found.expired_refs) == ["audit"]
    assert f"{MAX_REF_AGE} = 7" in found.expired_refs["audit"]
    assert sorted(found.snapshots) == [4, 5]


def test_c29_a_tag_of_just_its_age_stays() -> None:
    assert kept(metadata(CHAIN, {MAIN_BRANCH: branch(5), "audit": tag(2, max_ref_age_ms=DAYS_5 + 2)})) == [2, 4, 5]


def test_a_tag_without_a_snapshot_goes() -> None:
    found = retained("lake.t", metadata(CHAIN, {MAIN_BRANCH: branch(5), "broken": tag(77)}), NOW)
    assert list(found.expired_refs) == ["broken"]


def test_main_never_expires() -> None:
    found = metadata(CHAIN, {MAIN_BRANCH: branch(5, max_ref_age_ms=1)})
    assert kept(found, NOW + 10 * DAYS_5) == [5]


def test_what_no_branch_reaches_stays_while_it_is_young() -> None:
    staged = [*CHAIN, (6, 4, 10)]
    assert kept(metadata(staged, {MAIN_BRANCH: branch(5)})) == [4, 5, 6]
    found = retained("lake.t", metadata(staged, {MAIN_BRANCH: branch(5)}), NOW + DAYS_5)
    assert found.expired_snapshots[6].startswith("no branch or tag reaches it")


def test_a_commit_to_come_counts_as_the_newest_snapshot() -> None:
    found = metadata(CHAIN[:2], {MAIN_BRANCH: branch(2), "side": branch(1, max_ref_age_ms=1)})
    assert kept(found) == [2]
    assert kept(found, moving=[MAIN_BRANCH]) == []
    assert not retained("lake.t", found, NOW, ["side"]).expired_refs


def test_so_does_each_of_several() -> None:
    found = metadata(CHAIN[:3], {MAIN_BRANCH: branch(3)}).model_copy(update={"properties": {MIN_SNAPSHOTS: "3"}})
    assert kept(found, moving=[MAIN_BRANCH]) == [2, 3]
    assert kept(found, moving=[MAIN_BRANCH, MAIN_BRANCH]) == [3]


@pytest.mark.parametrize("name", [MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, MAX_REF_AGE])
@pytest.mark.parametrize("value", ["", "-1", "5d", "1.5", "9" * 30])
def test_c26_limits_that_are_no_numbers_are_refused(name: str, value: str) -> None:
    found = metadata(CHAIN, {MAIN_BRANCH: branch(5)}).model_copy(update={"properties": {name: value}})
    with pytest.raises(RefusedError, match=f"property {name} is '{value}'; allowed: a whole number"):
        retained("lake.t", found, NOW)


@dataclass(frozen=True)
class History:
    """Snapshots of (id, parent, age), refs with limits, and the table's own limits."""

    snapshots: list[tuple[int, int | None, int]]
    refs: dict[str, dict[str, Any]]
    limits: dict[str, str]


@st.composite
def histories(draw: st.DrawFn) -> History:
    count = draw(st.integers(1, 12))
    ages = draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    snapshots = [(one, draw(st.sampled_from([None, *range(1, one)])), ages[one - 1]) for one in range(1, count + 1)]
    limit, of_ref = (st.one_of(st.none(), st.integers(least, 60)) for least in (0, 1))
    refs = {MAIN_BRANCH: branch(draw(st.integers(1, count)))}
    for name in draw(st.sets(st.sampled_from("abcd"))):
        kind = draw(st.sampled_from([branch, tag]))
        refs[name] = kind(draw(st.integers(1, count)))
    for ref in refs.values():
        own = {"max-ref-age-ms": draw(of_ref)}
        if ref["type"] == "branch":
            least = draw(st.one_of(st.none(), st.integers(1, 5)))
            own |= {"max-snapshot-age-ms": draw(of_ref), "min-snapshots-to-keep": least}
        ref.update({name: value for name, value in own.items() if value is not None})
    names = {MAX_SNAPSHOT_AGE: draw(limit), MAX_REF_AGE: draw(limit), MIN_SNAPSHOTS: draw(st.integers(1, 4))}
    return History(snapshots, refs, {name: str(value) for name, value in names.items() if value is not None})


def model(history: History) -> tuple[set[int], set[str]]:
    """Ids and names that stay, word by word as Iceberg's specification has it."""
    parents = {one: parent for one, parent, _ in history.snapshots}
    ages = {one: age for one, _, age in history.snapshots}
    age_limit = int(history.limits.get(MAX_SNAPSHOT_AGE, DAYS_5))
    least = int(history.limits.get(MIN_SNAPSHOTS, 1))
    ref_limit = int(history.limits.get(MAX_REF_AGE, 2**63 - 1))
    refs = {
        name
        for name, ref in history.refs.items()
        if name == MAIN_BRANCH or ages[ref["snapshot-id"]] <= ref.get("max-ref-age-ms", ref_limit)
    }
    stays, reached = set(), set()
    for name in refs:
        ref = history.refs[name]
        stays.add(ref["snapshot-id"])
        reached.add(ref["snapshot-id"])
        if ref["type"] == "tag":
            continue
        line, one = [], ref["snapshot-id"]
        while one is not None:
            line.append(one)
            one = parents[one]
        reached |= set(line)
        for place, one in enumerate(line):
            enough = place >= ref.get("min-snapshots-to-keep", least)
            if enough and ages[one] > ref.get("max-snapshot-age-ms", age_limit):
                break
            stays.add(one)
    stays |= {one for one in parents if one not in reached and ages[one] <= age_limit}
    return stays, refs


class TestErased:
    """Snapshots from before keys were erased go for its sake, from main and Firn's branches (C30)."""

    YOUNG = ((1, None, 3), (2, 1, 2), (3, 2, 1), (4, 3, 0))

    def told(self, refs: Mapping[str, dict[str, Any]], erased_below: int) -> Mapping[int, str]:
        return retained("lake.t", metadata(self.YOUNG, refs), NOW, erased_below=erased_below).expired_snapshots

    def test_c30_the_older_ones_go_whatever_their_age(self) -> None:
        found = self.told({MAIN_BRANCH: branch(4, min_snapshots_to_keep=9)}, 3)
        assert found.keys() == {1, 2}
        assert set(found.values()) == {"on branch main, from before keys were erased (firn.erase.history = expire)"}

    def test_c30_a_head_stays(self) -> None:
        assert self.told({MAIN_BRANCH: branch(4), "firn_quarantine": branch(1)}, 9).keys() == {2, 3}

    def test_c30_what_a_tag_or_another_branch_keeps_stays(self) -> None:
        assert self.told({MAIN_BRANCH: branch(4), "t": tag(1)}, 4).keys() == {2, 3}
        assert self.told({MAIN_BRANCH: branch(4), "theirs": branch(2)}, 4).keys() == {3}

    def test_c30_a_snapshot_on_no_branch_is_nobodys_to_expire(self) -> None:
        assert self.told({MAIN_BRANCH: branch(2)}, 9).keys() == {1}


@given(histories())
def test_c29_what_stays_is_what_the_specification_says(history: History) -> None:
    found = metadata(history.snapshots, history.refs).model_copy(update={"properties": history.limits})
    told = retained("lake.t", found, NOW)
    stays, refs = model(history)
    assert told.snapshots == stays
    assert told.expired_snapshots.keys() == {one for one, _, _ in history.snapshots} - stays
    assert told.expired_refs.keys() == history.refs.keys() - refs
    assert all(history.refs[name]["snapshot-id"] in stays for name in refs), "no ref loses its snapshot"
