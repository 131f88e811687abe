"""Changes to a table behind Firn's back."""

from firnlake.iceberg.catalog import Lake
from firnlake.job.stage import Stage
from infra.foreign.files import on_disk
from tests.support.lakes import TABLE


def input_gone(lake: Lake, _: Stage) -> None:
    """Another writer deletes the record at offset 0, and with it an input."""
    lake.table(TABLE).delete("offset = 0")


def tear_manifest(lake: Lake, table: str) -> None:
    """Cut the only manifest of ``table`` off in the middle, as a store does that lost the rest of it."""
    loaded = lake.table(table)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(loaded.io)
    path = on_disk(manifest.manifest_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
