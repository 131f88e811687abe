"""What the judge of lane `erase` queries (C30): which records the requests name, and what became of all.

All other records are copies: what was read and is not named must be written, with the same horizon and level. Only a
tail may be written as a run: a level decides when a segment is read, never which record survives.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from expectations.claim import BURIED, TAIL
from expectations.tables import AFTER, BEFORE, IN_PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from expectations.column_mapping import Reading
    from expectations.duck import Duck
    from expectations.requested import Requested

_RUN: Final = 2

_MEANT = '("offset" < below AND NOT control AND (erase_before IS NULL OR "offset" < erase_before))'
"""True when a request names the record and its plan was to erase it."""
_LAST = f'(level != {BURIED} AND "offset" = log_end)'
"""True for the log end, which stays (C4)."""


def derive_erasure(duck: Duck, requested: Requested, schema: pa.Schema, reading: Reading) -> None:
    """Create the tables and views that the promises of lane `erase` query, over `before`, `after` and `plans`."""
    has_control = "is_control" in reading.of_transactions(schema.names)
    control = "control" if has_control else "false AS control"
    every = " UNION ALL ".join(
        f"SELECT plan, key, {'control' if side != IN_PLACE else control} FROM {name}"
        for side, name in ((BEFORE, "before"), (AFTER, "after"), (IN_PLACE, IN_PLACE))
    )
    sides = " UNION ALL ".join(
        f'SELECT {side} AS side, plan, "offset", key, level, horizon, mark FROM {name}{where}'
        for side, name, where in ((0, "come", " WHERE NOT goes"), (1, "after", ""))
    )
    same = "hash(hash(mark, horizon, level))::HUGEINT"
    for statement in (
        f"""CREATE TABLE named AS SELECT plan, key, max(below) AS below FROM (
            SELECT DISTINCT plan, key FROM ({every}) WHERE key IS NOT NULL AND NOT control
        ) AS keys JOIN requests USING (plan) WHERE digest = {requested.digest("key", schema, reading)}
        GROUP BY plan, key""",
        f"""CREATE VIEW come AS SELECT before.*, log_end, coalesce({_MEANT}, false) AND NOT {_LAST} AS goes
            FROM before JOIN plans USING (plan) LEFT JOIN named USING (plan, key)""",
        f"CREATE VIEW sides AS {sides}",
        f"""CREATE TABLE unsettled AS SELECT plan FROM sides GROUP BY plan
            HAVING count_if(side = 0) != count_if(side = 1)
            OR coalesce(sum({same}) FILTER (side = 0), 0) != coalesce(sum({same}) FILTER (side = 1), 0)""",
        """CREATE TABLE copies AS SELECT plan, "offset", mark, horizon, any_value(key) AS key,
            count_if(side = 0) AS n_in, count_if(side = 1) AS n_out, any_value(log_end) AS log_end,
            coalesce(list_sort(list(level) FILTER (side = 0)), []) AS levels_in,
            coalesce(list_sort(list(level) FILTER (side = 1)), []) AS levels_out
            FROM sides SEMI JOIN unsettled USING (plan) JOIN plans USING (plan)
            GROUP BY plan, "offset", mark, horizon""",
        f"""CREATE VIEW levels AS SELECT * FROM (
            SELECT plan, "offset", key, unnest(levels_in) AS level_in, unnest(levels_out) AS a_level
            FROM copies WHERE n_in = n_out
        ) WHERE a_level != level_in AND NOT (level_in = {TAIL} AND a_level = {_RUN})""",
        f"""CREATE VIEW remaining AS SELECT plan, "offset", key, lies FROM (
            SELECT plan, "offset", key, level, control, 'written' AS lies FROM after
            UNION ALL SELECT plan, "offset", key, level, {control}, 'in a segment left in place' FROM {IN_PLACE}
        ) JOIN plans USING (plan) JOIN named USING (plan, key) WHERE {_MEANT} AND NOT ({_LAST} AND end_kept)""",
    ):
        duck.run(statement)


def erasure_figures(duck: Duck) -> tuple[dict[int, Counter[str]], dict[int, int]]:
    """The figures of each plan, and the sums of the fingerprints written."""
    counts: dict[int, Counter[str]] = {}
    fingerprints: dict[int, int] = {}
    rows: Sequence[dict[str, int]] = duck.dicts(
        f"""SELECT plan, coalesce(records_in, 0) AS records_in, coalesce(erased, 0) AS erased,
            coalesce(end_in, 0) AS end_in, coalesce(records_out, 0) AS records_out,
            coalesce(fingerprint, 0) AS fingerprint, coalesce(files, 0) AS files, coalesce(deleted, 0) AS deleted
        FROM plans LEFT JOIN (
            SELECT plan, count_if(level != {BURIED} OR goes) AS records_in, count_if(goes) AS erased,
                count_if({_LAST}) AS end_in FROM come GROUP BY plan
        ) USING (plan) LEFT JOIN (
            SELECT plan, count_if(level != {BURIED}) AS records_out, sum(fingerprint::HUGEINT) AS fingerprint
            FROM after GROUP BY plan
        ) USING (plan) LEFT JOIN (SELECT plan, count(*) AS files FROM files GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS deleted FROM hidden GROUP BY plan) USING (plan)"""
    )
    for row in rows:
        fingerprints[row["plan"]] = int(row["fingerprint"])
        names = ("records_in", "erased", "end_in", "records_out", "files", "deleted")
        counts[row["plan"]] = +Counter({name: int(row[name]) for name in names})
    return counts, fingerprints
