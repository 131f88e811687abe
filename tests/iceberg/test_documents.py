"""Documents beside the metadata: one that the store can't give now is not taken for a damaged one."""

import pytest

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Document
from infra.foreign.files import on_disk


def test_c26_a_store_that_fails_is_no_damaged_document(lake: Lake, table: str) -> None:
    target = lake.table(table)
    document = Document.write(target, f"{target.location()}/metadata", "told", "{}")
    path = on_disk(document.location)
    path.write_text("[]")
    with pytest.raises(RefusedError, match=r"allowed: [0-9a-f]{64}, as Firn wrote it"):
        document.read(target, "snapshot 1")
    path.unlink()
    with pytest.raises(RefusedError, match="is gone"):
        document.read(target, "snapshot 1")
    path.symlink_to(path)
    with pytest.raises(UnavailableError, match="can't be read: "):
        document.read(target, "snapshot 1")
