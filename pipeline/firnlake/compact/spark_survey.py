"""The survey of a plan by Spark SQL: the keys of its records cross Spark's own shuffle, as columns.

Tasks read the keys, an aggregation of Spark SQL finds the newest record of each key, and other tasks write the marks of
the segments to files. Only the number of kept records per segment comes back to the driver.
"""

import pickle
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.utils.bin_packing import PackingIterator

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.marks import Marks, StoredMarks, store
from firnlake.compact.survey import Survey, before_keys, keys_of_segment, overlapping
from firnlake.engine.worker import in_arrow
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.files import MARKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from firnlake.engine.spark import SparkEngine

SPARK_RECORDS: Final = 100_000_000
"""Number of records of a plan above which Spark SQL compares the keys. A task that sorts them takes less than half
of the processor time, but more memory with each record, and no more than MOST_THREADS cores."""
_TASK_RECORDS: Final = 1 << 20
"""Records, of whole segments, whose keys a task reads, or whose marks it writes (approximate)."""
_PLACE_BITS: Final = 40
"""A place is the number of the segment in the plan, and in the lower bits that of the record in its segment."""

_KEYS: Final = "key binary, place bigint, rank bigint, apart bigint, repeated boolean"
"""``rank`` orders the records of a key: it is twice the offset, and one more unless the record is a removed tombstone,
which is older than a record at its offset. ``apart`` is the place of a record that is not compared: it has no key here,
and is a group of its own."""
_LAST_OFFSET: Final = (1 << 62) - 1
"""The highest offset that has a rank."""
_WRITTEN: Final = "segment int, stored binary"
"""The number of a segment in the plan, and its pickled StoredMarks."""


def suits_spark(inputs: PlanInputs) -> bool:
    """True if Spark SQL should survey the plan. Transactions need the records of all keys together, in one task."""
    if inputs.plan.transactional or max(one.last_offset for one in inputs.segments) > _LAST_OFFSET:
        return False
    return sum(one.records for one in inputs.segments) > SPARK_RECORDS


def survey_on_spark(inputs: PlanInputs, engine: "SparkEngine", folder: str, title: str) -> Survey[StoredMarks]:
    """Survey ``inputs``, whose marks go to files in ``folder``. Raises what ``survey`` and ``SparkEngine`` do."""
    from pyspark.sql import functions

    paths = [segment.path for segment in inputs.segments]
    tasks = [(inputs.only(inputs.segments[one] for one in numbers), numbers) for numbers in _readers(inputs)]
    keys = engine.read([partial(_read_keys, *one) for one in tasks], _KEYS)
    writers = min(len(paths), -(-sum(one.records for one in inputs.segments) // _TASK_RECORDS))
    newest = _newest(keys).repartition(writers, functions.shiftright("place", _PLACE_BITS))
    rows = engine.written(newest, partial(_write_marks, inputs.files, folder), _WRITTEN, title)
    marks = {paths[row["segment"]]: pickle.loads(bytes(row["stored"])) for row in rows}  # noqa: S301  # of Firn's workers
    return Survey.of(inputs.plan, marks)


def _newest(keys: "DataFrame") -> "DataFrame":
    """The newest record of each key (C2), and all records that are not compared.

    A removed tombstone is the newest only if its key has records, and all of these are older (C9).
    """
    from pyspark.sql.functions import expr

    # Few keys are in a task twice, so Spark need not aggregate them there, before the shuffle.
    by_key = (
        keys.repartition("key", "apart")
        .groupBy("key", "apart")
        .agg(
            expr("coalesce(apart, max_by(place, rank)) AS place"),
            expr("coalesce(min(rank) FILTER (WHERE (rank & 1) = 1) < max(rank), false) AS has_older"),
            expr("coalesce(max(repeated), false) AS repeated"),
            expr("apart IS NOT NULL OR max(rank & 1) = 1 AS remains"),
        )
    )
    return by_key.where("remains").selectExpr("place", "has_older", "apart IS NOT NULL AS apart", "repeated")


def _readers(inputs: PlanInputs) -> Iterator[list[int]]:
    """The segments of each task that reads keys. Segments that may share offsets are in the same task."""
    numbers = iter(range(len(inputs.segments)))
    for groups in PackingIterator(
        overlapping(inputs), _TASK_RECORDS, lookback=1, weight_func=lambda group: sum(one.records for one in group)
    ):
        yield [next(numbers) for group in groups for _ in group]


def _read_keys(inputs: PlanInputs, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Read the keys of the segments in ``inputs``, which have these ``numbers`` in their plan."""
    for number, segment, before in zip(numbers, inputs.segments, before_keys(inputs), strict=True):
        first = number << _PLACE_BITS
        for keys, marks in keys_of_segment(inputs, segment, before, first):
            yield _rows(keys, marks)
        # After its records, every segment gets a row that tells their number.
        end = first + before.records
        yield pa.RecordBatch.from_pylist([{"place": end, "apart": end}], schema=in_arrow(_KEYS))


def _rows(keys: pa.RecordBatch, marks: Marks) -> pa.RecordBatch:
    """Rows of _KEYS from rows of ``survey.KEYS``, with the marks of their records."""
    columns = [
        keys["key"].cast(pa.binary()),
        keys["place"],
        pc.add_checked(pc.multiply_checked(keys["log_offset"], 2), pc.invert(keys["removed"]).cast(pa.int64())),
        pc.if_else(keys["key"].is_valid(), pa.scalar(None, pa.int64()), keys["place"]),
        marks.flags("repeated"),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=in_arrow(_KEYS))


def _write_marks(files: DataFiles, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the marks of segments to a file in ``folder``, from ``batches`` of all rows of _newest about them."""
    parts = list(batches)
    if not parts:
        return
    rows = pa.Table.from_batches(parts).sort_by("place")
    numbers, starts = np.unique(rows["place"].to_numpy() >> _PLACE_BITS, return_index=True)
    ends = [*starts[1:].tolist(), len(rows)]
    marks = {
        number: _marks(rows.slice(start, end - start))
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True)
    }
    stored = store(marks, f"{folder}/{uuid.uuid4()}{MARKS}", files)
    written = [{"segment": number, "stored": pickle.dumps(one)} for number, one in stored.items()]
    yield pa.RecordBatch.from_pylist(written, schema=in_arrow(_WRITTEN))


def _marks(rows: pa.Table) -> Marks:
    """The marks of a segment from its rows of _newest in the order of places, of which the last tells their number."""
    places = rows["place"].to_numpy() & ((1 << _PLACE_BITS) - 1)
    records = int(places[-1])
    newest, has_older, repeated = np.zeros((3, records + 1), dtype=np.bool_)
    newest[places[~rows["apart"].to_numpy()]] = True
    has_older[places] = rows["has_older"].to_numpy()
    repeated[places] = rows["repeated"].to_numpy()
    return Marks.of(records + 1, newest=newest, has_older=has_older, repeated=repeated).part(0, records)
