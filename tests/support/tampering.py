"""Changes to a table behind Firn's back."""

from firnlake.iceberg.catalog import Lake
from infra.foreign.files import on_disk


def tear_manifest(lake: Lake, table: str) -> None:
    """Cut the only manifest of ``table`` off in the middle, as a store does that lost the rest of it."""
    loaded = lake.table(table)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(loaded.io)
    path = on_disk(manifest.manifest_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
