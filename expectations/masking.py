"""What the judge of lane `mask` queries (C28): what is hidden, whether a newer record supersedes it, and what is not.

Both sides are the same files, before with the old row-level deletes and after with the new ones. A record competes for
its key unless it is of control, or of a transaction that is aborted or not decided (C10).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from expectations.views import transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expectations.duck import Duck
    from expectations.tables import Layout

_RUN: Final = 2
"""A stamp counts only if Firn wrote it: levels 0 and 1 come from any writer."""


def derive_masking(duck: Duck, layout: Layout) -> None:
    """Create the tables and views that the promises of lane `mask` query, over `before`, `after` and `plans`."""
    sides = " UNION ALL ".join(
        f'SELECT {side} AS side, plan, "offset", key, level, horizon, control FROM {name}'
        for side, name in enumerate(("before", "after"))
    )
    for statement in (
        *transactions(layout),
        f"""CREATE VIEW seen AS SELECT side, plan, "offset", key, level, horizon, log_end,
            key IS NOT NULL AND NOT control AND NOT coalesce(aborted, false) AND NOT coalesce(undecided, false)
                AS competes
            FROM ({sides}) JOIN plans USING (plan) LEFT JOIN marks USING (plan, "offset")""",
        # A record below a stamped tombstone landed late: it stays, so that the tombstone is stamped anew (C9).
        f"""CREATE TABLE visible_newest AS SELECT plan, key, max("offset") AS newest,
            coalesce(max("offset") FILTER (level >= {_RUN} AND horizon IS NOT NULL) = newest, false) AS stamped
            FROM seen WHERE side = 1 AND competes GROUP BY plan, key""",
        """CREATE TABLE changed AS SELECT plan, "offset", key, level, horizon, any_value(log_end) AS log_end,
            bool_and(competes) AS competes, count_if(side = 0) AS n_in, count_if(side = 1) AS n_out
            FROM seen GROUP BY plan, "offset", key, level, horizon HAVING n_in != n_out""",
        """CREATE VIEW masked AS SELECT changed.*, newest FROM changed LEFT JOIN visible_newest USING (plan, key)
            WHERE n_in > n_out""",
        """CREATE VIEW still_visible AS SELECT plan, "offset", key, newest FROM seen
            JOIN visible_newest USING (plan, key) WHERE side = 1 AND competes AND "offset" < newest AND NOT stamped""",
    ):
        duck.run(statement)


def masking_figures(duck: Duck) -> tuple[dict[int, Counter[str]], dict[int, int]]:
    """The figures of each plan, and the sums of the fingerprints written: no value is read, so they are 0."""
    rows: Sequence[dict[str, int]] = duck.dicts(
        """SELECT plan, coalesce(records_in, 0) AS records_in, coalesce(records_out, 0) AS records_out,
            coalesce(superseded, 0) AS superseded, coalesce(end_in, 0) AS end_in, coalesce(keys_out, 0) AS keys_out,
            coalesce(files, 0) AS files, coalesce(deleted, 0) AS deleted
        FROM plans LEFT JOIN (
            SELECT plan, count_if(side = 0) AS records_in, count_if(side = 1) AS records_out,
                count_if(side = 0 AND "offset" = log_end) AS end_in FROM seen GROUP BY plan
        ) USING (plan) LEFT JOIN (SELECT plan, sum(n_in - n_out) AS superseded FROM masked GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, count(*) AS keys_out FROM visible_newest GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, count(*) AS files FROM files GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS deleted FROM hidden GROUP BY plan) USING (plan)"""
    )
    names = ("records_in", "records_out", "superseded", "end_in", "keys_out", "files", "deleted")
    figures = {row["plan"]: +Counter({name: int(row[name]) for name in names}) for row in rows}
    return figures, dict.fromkeys(figures, 0)
