"""The choice of manifests that are worth writing anew, from the manifest list alone."""

import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile, construct_partition_summaries
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.maintain.many_manifests import MAX_ENTRIES, ManifestLimits, many
from tests.support.lakes import TABLE

LARGE, SMALL = 5 << 20, 1 << 20
"""Bytes, beside Iceberg's default target of 8 MiB."""


@pytest.fixture
def target(lake: Lake, table: str) -> Table:
    return lake.table(table)


def manifest(
    target: Table, length: int, snapshot_id: int, *partitions: tuple[str, int], files: int = 1
) -> ManifestFile:
    """One of data files in these topic partitions, at level 3."""
    found = [Record(topic, number, 3) for topic, number in partitions]
    return ManifestFile.from_args(
        manifest_path=f"m{snapshot_id}.avro",
        manifest_length=length,
        partition_spec_id=target.spec().spec_id,
        content=ManifestContent.DATA,
        sequence_number=snapshot_id,
        min_sequence_number=1,
        added_snapshot_id=snapshot_id,
        added_files_count=files,
        existing_files_count=0,
        deleted_files_count=0,
        partitions=construct_partition_summaries(target.spec(), target.schema(), found),
        key_metadata=None,
    )


def chosen(target: Table, *listed: ManifestFile) -> list[int | None]:
    """Snapshots whose manifests would be written anew."""
    found = many(target, listed, ManifestLimits.of(target, TABLE))
    return [one.added_snapshot_id for group in found for one in group.manifests]


def test_a_hundred_small_ones_are_many(target: Table) -> None:
    small = [manifest(target, SMALL, number, ("orders", 0)) for number in range(1, 101)]
    assert len(chosen(target, *small)) == 100
    assert chosen(target, *small[1:]) == []


def test_only_the_small_ones_are(target: Table) -> None:
    small = [manifest(target, SMALL, number, ("orders", 0)) for number in range(1, 101)]
    full = manifest(target, LARGE, 101, ("orders", 0))
    dense = manifest(target, SMALL, 102, ("orders", 0), files=MAX_ENTRIES // 2)
    assert sorted(map(int, filter(None, chosen(target, *small, full, dense)))) == list(range(1, 101))


def test_all_are_when_more_than_ten_commits_left_full_ones_of_the_same_partition(target: Table) -> None:
    full = [manifest(target, LARGE, number, ("orders", 0), ("orders", 9)) for number in range(1, 12)]
    small = manifest(target, SMALL, 12, ("payments", 0))
    assert len(chosen(target, *full, small)) == 12
    assert chosen(target, *full[1:], small) == []


def test_full_ones_of_different_partitions_are_in_order(target: Table) -> None:
    assert chosen(target, *(manifest(target, LARGE, one, ("orders", one)) for one in range(1, 40))) == []
    assert chosen(target, *(manifest(target, LARGE, one, (f"topic-{one}", 0)) for one in range(1, 40))) == []


def test_those_of_one_commit_were_put_in_order_together(target: Table) -> None:
    assert chosen(target, *(manifest(target, LARGE, 7, ("orders", 0)) for _ in range(40))) == []


def test_those_without_bounds_are_left_alone(target: Table) -> None:
    unbounded = [manifest(target, LARGE, number) for number in range(1, 40)]
    assert chosen(target, *unbounded) == list(range(1, 40)), "NULL in every field is one partition"
    without = [
        ManifestFile.from_args(
            manifest_path=f"m{number}.avro",
            manifest_length=LARGE,
            partition_spec_id=target.spec().spec_id,
            content=ManifestContent.DATA,
            sequence_number=number,
            added_snapshot_id=number,
            partitions=None,
        )
        for number in range(1, 40)
    ]
    assert chosen(target, *without) == []
