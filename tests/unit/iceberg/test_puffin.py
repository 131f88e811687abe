"""A Puffin file has the layout of Iceberg's spec, and a damaged one is refused by name."""

import json

import pytest
from pyiceberg.table.puffin import PuffinFile

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.side_branches import Blob, read_puffin, write_puffin
from infra.foreign.files import on_disk
from tests.support.lakes import TABLE

BLOBS = [Blob("one-v1", b"first " * 1000, {"name": "value"}), Blob("two-v1", b"")]


@pytest.fixture
def location(lake: Lake, table: str) -> str:
    assert table == TABLE
    return f"{lake.table(TABLE).location()}/metadata/some.puffin"


def test_what_is_written_is_read(lake: Lake, location: str) -> None:
    write_puffin(lake.table(TABLE), location, BLOBS, 7, 3)
    assert read_puffin(lake.table(TABLE), location, "it") == BLOBS


def test_the_layout_is_that_of_the_spec(lake: Lake, location: str) -> None:
    entry = write_puffin(lake.table(TABLE), location, BLOBS, 7, 3)
    content = on_disk(location).read_bytes()
    assert (entry.snapshot_id, entry.file_size_in_bytes) == (7, len(content))
    assert content[:4] == content[-4:] == b"PFA1"
    assert content[-8:-4] == bytes(4), "no flag is set: the footer is not compressed"
    size = int.from_bytes(content[-12:-8], "little", signed=True)
    assert entry.file_footer_size_in_bytes == 4 + size + 12
    assert content[-entry.file_footer_size_in_bytes :][:4] == b"PFA1"
    footer = json.loads(content[-12 - size : -12])
    first, second = footer["blobs"]
    assert (first["type"], first["fields"], first["properties"]) == ("one-v1", [], {"name": "value"})
    assert (first["snapshot-id"], first["sequence-number"], first["compression-codec"]) == (7, 3, "zstd")
    assert (first["offset"], second["offset"]) == (4, 4 + first["length"])
    assert second["offset"] + second["length"] == len(content) - entry.file_footer_size_in_bytes


def test_pyiceberg_reads_it(lake: Lake, location: str) -> None:
    write_puffin(lake.table(TABLE), location, BLOBS, 7, 3)
    file = PuffinFile(on_disk(location).read_bytes())
    assert [file.get_blob_payload(one) for one in file.footer.blobs] == [one.content for one in BLOBS]


@pytest.mark.parametrize("kept", [0, 3, 40, -1, -20])
def test_a_cut_file_is_refused(lake: Lake, location: str, kept: int) -> None:
    write_puffin(lake.table(TABLE), location, BLOBS, 7, 3)
    path = on_disk(location)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RefusedError, match=r"it: .*some\.puffin is damaged: .*; allowed: the file as Firn wrote it"):
        read_puffin(lake.table(TABLE), location, "it")


def test_changed_content_is_refused(lake: Lake, location: str) -> None:
    write_puffin(lake.table(TABLE), location, BLOBS, 7, 3)
    path = on_disk(location)
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(RefusedError, match="is damaged"):
        read_puffin(lake.table(TABLE), location, "it")


def test_a_missing_file_is_refused(lake: Lake, location: str) -> None:
    with pytest.raises(RefusedError, match=r"it: .* is gone"):
        read_puffin(lake.table(TABLE), location, "it")
