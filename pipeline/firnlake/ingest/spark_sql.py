"""Statements for Spark that make a table fit for adoption. Firn only shows them; it runs none of them."""

import re

from firnlake.iceberg.catalog import Lake
from firnlake.table.columns import ColumnRoles

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def rewrite_files(lake: Lake, identifier: str) -> str:
    """Rewrite all data files of the table under its current partition spec (Iceberg, "Spark Procedures")."""
    name = _dotted(identifier).replace("\\", "\\\\").replace("'", "\\'")
    return (
        f"CALL {_name(lake.name)}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    )


def repeated_offsets(lake: Lake, identifier: str, columns: ColumnRoles) -> str:
    """Find offsets that several records of a topic partition have."""
    unique = ", ".join(map(_column, (*_topic_partition(columns), columns.offset)))
    table = _table(lake, identifier)
    return f"SELECT {unique}, count(*) FROM {table} GROUP BY {unique} HAVING count(*) > 1"  # noqa: S608  # not run


def number_repeated(lake: Lake, identifier: str, columns: ColumnRoles) -> tuple[str, str]:
    """Two statements: the first finds offsets below which too few numbers are free; if it finds none, the second gives
    records of different keys with the same offset different offsets.

    Of n keys at one offset, n - 1 get the numbers just below it. Nothing else has these numbers, so the records keep
    their order relative to all others. Copies of a record stay at the same offset.
    """
    table, offset = _table(lake, identifier), _column(columns.offset)
    owner = [_column(name) for name in _topic_partition(columns)]
    keys = [_column(name) for name in columns.key]
    place = ", ".join([*owner, offset])
    window = f"PARTITION BY {', '.join(owner)} ORDER BY {offset}" if owner else f"ORDER BY {offset}"
    too_few = (
        f"SELECT * FROM (SELECT {place}, count(*) AS records, "  # noqa: S608  # not run
        f"{offset} - coalesce(lag({offset}) OVER ({window}), -1) AS room FROM {table} GROUP BY {place}) "
        "WHERE records > room"
    )
    key = ", ".join(keys)
    number = f"{offset} + 1 - dense_rank() OVER (PARTITION BY {place} ORDER BY {key})"
    same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in (*owner, *keys))
    renumber = (
        f"MERGE INTO {table} t USING (SELECT DISTINCT {place}, {key}, {number} AS firn_number FROM {table}) s "  # noqa: S608
        f"ON {same} AND t.{offset} = s.{offset} AND s.firn_number < s.{offset} "
        f"WHEN MATCHED THEN UPDATE SET {offset} = s.firn_number"
    )
    return too_few, renumber


def _table(lake: Lake, identifier: str) -> str:
    """The table's name in a Spark session that calls the catalog as PyIceberg does."""
    return f"{_name(lake.name)}.{_dotted(identifier)}"


def _topic_partition(columns: ColumnRoles) -> tuple[str, ...]:
    return tuple(name for name in (columns.topic, columns.partition) if name)


def _dotted(identifier: str) -> str:
    return ".".join(map(_name, identifier.split(".")))


def _name(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else _column(part)


def _column(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
