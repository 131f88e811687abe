"""What the judge of lane `mask` queries (C28): what is hidden, whether a newer record supersedes it, and what is not.

Both sides are the same files, before with the old row-level deletes and after with the new ones, so each record is held
once, with a flag for each side. A record competes for its key unless it is of control, or of a transaction that is
aborted or not decided (C10).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from expectations.tables import SHOWN
from expectations.transactions import transactions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from expectations.duck import Duck
    from expectations.tables import Layout

_RUN: Final = 2
"""A stamp counts only if Firn wrote it: levels 0 and 1 come from any writer."""


def derive_masking(duck: Duck, layout: Layout) -> None:
    """Create the tables and views that the promises of lane `mask` query, over `shown`, `before` and `plans`.

    Keys are compared only where it matters: those of records hidden or shown anew, and those whose hash more than one
    visible record has. Equal keys have equal hashes, so no key with two visible records is missed.
    """
    marks, joined, competes = [], "", "key IS NOT NULL"
    if "control" in layout.columns(SHOWN):
        marks, joined = transactions(layout), 'LEFT JOIN marks USING (plan, "offset")'
        competes += " AND NOT control AND NOT coalesce(aborted, false) AND NOT coalesce(undecided, false)"
    for statement in (
        *marks,
        f"""CREATE VIEW seen AS SELECT plan, "offset", key, hash(key) AS hashed, level, horizon, log_end,
            shown_before, shown_after, {competes} AS competes
            FROM {SHOWN} JOIN plans USING (plan) {joined}""",
        # A record may have landed twice, and its copies may swap: they count together.
        f"""CREATE TABLE changed AS SELECT plan, "offset", key, level, horizon, any_value(log_end) AS log_end,
            bool_and(competes) AS competes, count_if(shown_before) AS n_in, count_if(shown_after) AS n_out
            FROM seen SEMI JOIN (
                SELECT DISTINCT plan, "offset" FROM {SHOWN} WHERE shown_before != shown_after
            ) USING (plan, "offset")
            GROUP BY plan, "offset", key, level, horizon HAVING n_in != n_out""",
        """CREATE TABLE doubted AS SELECT plan, hash(key) AS hashed FROM changed UNION (
            SELECT plan, hashed FROM seen WHERE shown_after AND competes GROUP BY plan, hashed HAVING count(*) > 1)""",
        """CREATE TABLE compared AS SELECT plan, "offset", key, level, horizon FROM seen
            SEMI JOIN doubted USING (plan, hashed) WHERE shown_after AND competes""",
        # A record below a stamped tombstone landed late: it stays, so that the tombstone is stamped anew (C9).
        f"""CREATE TABLE visible_newest AS SELECT plan, key, max("offset") AS newest, count(*) AS visible,
            coalesce(max("offset") FILTER (level >= {_RUN} AND horizon IS NOT NULL) = newest, false) AS stamped
            FROM compared GROUP BY plan, key""",
        """CREATE TABLE masked AS SELECT changed.*, newest FROM changed LEFT JOIN visible_newest USING (plan, key)
            WHERE n_in > n_out""",
        """CREATE TABLE still_visible AS SELECT plan, "offset", key, newest FROM compared
            JOIN visible_newest USING (plan, key) WHERE "offset" < newest AND NOT stamped""",
    ):
        duck.run(statement)


def masking_figures(duck: Duck) -> tuple[dict[int, Counter[str]], dict[int, int]]:
    """The figures of each plan, and the sums of the fingerprints written: no value is read, so they are 0."""
    rows: Sequence[dict[str, int]] = duck.dicts(
        """SELECT plan, coalesce(records_in, 0) AS records_in, coalesce(records_out, 0) AS records_out,
            coalesce(superseded, 0) AS superseded, coalesce(end_in, 0) AS end_in,
            coalesce(competing, 0) - coalesce(older, 0) AS keys_out,
            coalesce(files, 0) AS files, coalesce(deleted, 0) AS deleted
        FROM plans LEFT JOIN (
            SELECT plan, count_if(shown_before) AS records_in, count_if(shown_after) AS records_out,
                count_if(shown_before AND "offset" = log_end) AS end_in, count_if(shown_after AND competes) AS competing
            FROM seen GROUP BY plan
        ) USING (plan) LEFT JOIN (SELECT plan, sum(n_in - n_out) AS superseded FROM masked GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(visible - 1) AS older FROM visible_newest GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, count(*) AS files FROM files GROUP BY plan) USING (plan)
        LEFT JOIN (SELECT plan, sum(records) AS deleted FROM hidden GROUP BY plan) USING (plan)"""
    )
    names = ("records_in", "records_out", "superseded", "end_in", "keys_out", "files", "deleted")
    figures = {row["plan"]: +Counter({name: int(row[name]) for name in names}) for row in rows}
    return figures, dict.fromkeys(figures, 0)
