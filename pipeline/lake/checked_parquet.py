"""Parquet with page checksums: the only way in which Firn opens and writes Parquet files (C23).

A writer may store a CRC-32 of every page, as stored (Parquet format, "Checksumming"). Readers verify it only when told
to. A file without checksums is read as it is. A mismatch raises OSError, like any other damage. Footers, page headers
and bloom filters have none.
"""

from functools import partial
from typing import Final

import pyarrow.parquet as pq

open_file: Final = partial(pq.ParquetFile, page_checksum_verification=True)
"""``ParquetFile`` that verifies."""
read_file: Final = partial(pq.read_table, page_checksum_verification=True)
"""``read_table`` that verifies."""
file_writer: Final = partial(pq.ParquetWriter, write_page_checksum=True)
"""``ParquetWriter`` of files with checksums."""
write_file: Final = partial(pq.write_table, write_page_checksum=True)
"""``write_table`` of files with checksums."""
