"""Commits of the tests' own."""

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit, Settled, settle
from firnlake.iceberg.manifests import Manifests
from tests.support.lakes import TABLE


def commit(lake: Lake, prepared: Commit, identifier: str = TABLE) -> Settled:
    """Make the commit ``prepared`` to table ``identifier``."""
    return settle(lake, identifier, lambda table: prepared.request(table, Manifests(table.io)))
