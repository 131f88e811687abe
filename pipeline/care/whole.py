"""A table as it is loaded to decide what may be deleted: checked against its metadata file.

A catalog may answer with less than the file holds: REST's ``snapshots=refs`` leaves out every snapshot that no
reference points at, and their files would look like nobody's (Iceberg REST specification, ``loadTable``).
"""

from collections.abc import Iterator, Mapping

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.catalog import METADATA_TRIES


def whole_table(lake: Lake, identifier: str) -> Table:
    """Load table ``identifier``. RefusedError where the catalog's answer and the table's metadata file differ.

    Raises FileNotFoundError when that file is gone, again and again: commits may delete it
    (``write.metadata.delete-after-commit.enabled``).
    """
    attempts = Retrying(
        retry=retry_if_exception_type(FileNotFoundError),
        stop=stop_after_attempt(METADATA_TRIES),
        wait=wait_random_exponential(multiplier=0.02, max=0.2),
        reraise=True,
    )
    return attempts(_checked, lake, identifier)


def _checked(lake: Lake, identifier: str) -> Table:
    table = lake.table(identifier)
    if not table.metadata_location:
        raise RefusedError(
            f"table {identifier}: catalog {lake.name} tells no metadata location, so nothing is deleted; allowed: a "
            "catalog that names the table's metadata file"
        )
    stored = FromInputFile.table_metadata(table.io.new_input(table.metadata_location))
    if differences := "; ".join(_differences(table.metadata, stored)):
        raise RefusedError(
            f"table {identifier}: nothing is deleted, as catalog {lake.name} and the metadata file "
            f"{table.metadata_location} differ: {differences}; allowed: a catalog that loads tables as their files "
            "tell (snapshot-loading-mode: all)"
        )
    return table


def _differences(loaded: TableMetadata, stored: TableMetadata) -> Iterator[str]:
    if loaded.table_uuid != stored.table_uuid:
        yield f"table UUID {loaded.table_uuid} and {stored.table_uuid}"
    for what, ours, theirs in (
        ("snapshots", _manifest_lists(loaded).keys(), _manifest_lists(stored).keys()),
        ("manifest lists", _manifest_lists(loaded).items(), _manifest_lists(stored).items()),
        ("references", _references(loaded).items(), _references(stored).items()),
        ("statistics", _statistics(loaded), _statistics(stored)),
    ):
        if ours != theirs:
            yield f"{what}: {len(ours - theirs)} only as loaded, {len(theirs - ours)} only in the file"
            return


def _manifest_lists(metadata: TableMetadata) -> Mapping[int, str]:
    return {one.snapshot_id: one.manifest_list for one in metadata.snapshots}


def _references(metadata: TableMetadata) -> Mapping[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


def _statistics(metadata: TableMetadata) -> set[str]:
    return {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
