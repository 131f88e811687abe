"""Views derived once from the tables for all promises: SQL in execution order.

`before` and `after` are the records read and written, `left_behind` the records that wrongly stayed in place. The keys
of a plan are divided into *slices* by their hash, so that one wrong record does not cause all records to be compared. A
slice is *settled* if the sum of the hashed keys and offsets (or, if values were read, of the fingerprints) is the same
for the newest records read and the records written, and nothing in the plan is rare. Only special records of a settled
slice are compared one by one: tombstones, records without a key, and records at a level or with a delete horizon that a
cleaned record does not have. For all other records every promise follows: there are as many records as keys, and the
sums of the hashes are the same, so each record is the newest of its key.

**Values** are read once, on the written side. This is proof enough, because compaction took a fingerprint of the
records that it keeps when it read them:

1. Key and offset of the newest record of every key are derived here from the records read. Their sum equals that of
   the keys and offsets written, so exactly these records were written.
2. The fingerprints written, over every column that C1 keeps, sum up to the fingerprint that compaction took. So each
   record is unchanged since compaction read it.
3. Whether the newest record of a key is a tombstone is read from the written record, because every newest record is
   written: to the topic, to the quarantine, or to the removed tombstones.

These errors would not be found: a value that was misread before its fingerprint was taken (by a fault of the Parquet
reader or of memory), because it is not read a second time; fingerprints that the cleaner takes of other data than it
read; and errors whose 64-bit hashes cancel out, by a chance of 1 in 2^64. A plan with a violation by this measure is
judged again *closely*, with the values of both sides; `firn.validate=full` judges all plans so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from firnlake_expectations.case import AFTER, BEFORE, BURIED, COPIES, IN_PLACE, QUARANTINED, RUN, TAIL

if TYPE_CHECKING:
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.tables import Layout


_HASHED_KEY = "hash(1, key)"
MARK = f'hash(hash({_HASHED_KEY}, "offset"))'
"""Mark that identifies a record when a fingerprint vouches for the rest of it, as SQL."""
_SLICE = f"({_HASHED_KEY} >> 52)::INTEGER"
"""One of 4096 slices of the keys, as SQL."""


def derive(duck: Duck, layout: Layout) -> None:
    """Create the views, and the tables that are costly to compute, over the filled tables."""
    copies = layout.lane in COPIES
    _plans(duck, layout)
    for statement in (
        *_sides(layout),
        *_sums(copies, layout),
        *_offsets(copies, layout.reads_values),
        _unsettled(copies, layout),
        _special(copies),
        *_transactions(copies, layout),
        _left_behind(),
        _looked_at(copies),
        _groups(copies, keeps_levels=layout.erases),
        *((_LEVELS,) if layout.erases else ()),
        "DROP TABLE looked_at",
    ):
        duck.run(statement)


def _plans(duck: Duck, layout: Layout) -> None:
    """Create the tables `plans` and `markers`."""
    # Times are epoch microseconds. `stamp` is the delete horizon of a tombstone that this cleaning is the first to find
    # clean (C8).
    duck.run(
        """CREATE TABLE plans (plan INTEGER, now BIGINT, stamp BIGINT, clean_below BIGINT, log_end BIGINT,
            kept_from BIGINT, level_out INTEGER)"""
    )
    duck.run('CREATE TABLE markers (plan INTEGER, producer BIGINT, "offset" BIGINT, commit BOOLEAN)')
    claims = [case.claim for case in layout.cases]
    duck.insert(
        "plans",
        (
            (
                number,
                one.now_ms * 1000,
                None if one.stamp_ms is None else one.stamp_ms * 1000,
                one.clean_below,
                one.log_end_offset,
                one.end,
                one.level_out,
            )
            for number, one in enumerate(claims)
        ),
    )
    duck.insert("markers", ((number, *marker) for number, one in enumerate(claims) for marker in one.markers))


def _sides(layout: Layout) -> list[str]:
    """`before` and `after`, the records read and written; lane `erase`: `before` without the records that are to be
    erased, and `erased`, their number."""
    return [
        _side("come" if layout.erases else "before", BEFORE, layout),
        _side("after", AFTER, layout),
        "CREATE TABLE erased (plan INTEGER, records BIGINT)",
        *(_without_erased(layout) if layout.erases else ()),
    ]


def _side(name: str, table: str, layout: Layout) -> str:
    """`before` or `after`: the table, its missing columns, and the mark that identifies a record.

    The mark covers all columns that C1 keeps; when a fingerprint vouches for values, key and offset are enough.
    """
    has = layout.columns(table)
    missing = {
        "tombstone": "NULL::BOOLEAN",
        "fingerprint": "NULL::UBIGINT",
        "control": "false",
        "transactional": "false",
        "producer": "NULL::BIGINT",
    }
    added = "".join(f", {sql} AS {column}" for column, sql in missing.items() if column not in has)
    mark = "fingerprint" if layout.reads_values else MARK
    return f"CREATE VIEW {name} AS SELECT *{added}, {mark} AS mark FROM {table}"


def _sums(copies: bool, layout: Layout) -> list[str]:
    """The sums of each plan, `read_sums`, and those of each slice of its keys, `written_sums` and `newest`."""
    # The delete horizon is part of a copy's identity, too, and so is the level where it is kept.
    copy = "hash(hash(mark, horizon, level))" if layout.erases else "hash(hash(mark, horizon))"
    # Keys are grouped by their hash, because DuckDB groups many more rows of one small size in the same memory. If two
    # keys have the same hash, their slice is not settled: more keys are written than counted here.
    of_newest = 'arg_max(mark, "offset")' if layout.reads_values else 'hash(hash(hashed, max("offset")))'
    newest = (
        f"SELECT plan, {_SLICE} AS slice, count(*) AS keys, count(*) AS keyed, sum({copy}::HUGEINT) AS whole "
        f"FROM before GROUP BY plan, slice"
        if copies
        else f"SELECT plan, {_SLICE.replace(_HASHED_KEY, 'hashed')} AS slice, count(*) AS keys, "
        f"sum(n)::BIGINT AS keyed, sum(mark::HUGEINT) AS whole "
        f"FROM (SELECT plan, {_HASHED_KEY} AS hashed, count(*) AS n, {of_newest} AS mark "
        f"FROM before WHERE key IS NOT NULL AND level != {BURIED} GROUP BY plan, hashed) GROUP BY plan, slice"
    )
    whole = copy if copies else "CASE WHEN key IS NOT NULL THEN mark END"
    return [
        f"""CREATE TABLE read_sums AS SELECT plan, count_if(level != {BURIED}) AS records,
            max("offset") FILTER (level != {BURIED}) AS last,
            count_if(control OR transactional) AS transactions,
            count_if("offset" = log_end AND level != {BURIED}) AS end_in
            FROM before JOIN plans USING (plan) GROUP BY plan""",
        f"CREATE TABLE newest AS {newest}",
        f"""CREATE TABLE written_sums AS SELECT plan, {_SLICE} AS slice,
            count_if(level NOT IN ({QUARANTINED}, {BURIED})) AS records,
            count_if(level = {QUARANTINED}) AS quarantined, count(key) AS keyed, count(*) AS every,
            count_if(level != level_out) AS elsewhere, sum({whole}::HUGEINT) AS whole,
            sum(fingerprint::HUGEINT) AS fingerprint FROM after JOIN plans USING (plan) GROUP BY plan, slice""",
    ]


def _unsettled(copies: bool, layout: Layout) -> str:
    written = "written_sums.every" if copies else "written_sums.keyed"
    elsewhere = "" if layout.same_files or layout.erases else "OR elsewhere > 0"
    rare = elsewhere if copies else "OR coalesce(transactions, 0) > 0 OR last > log_end"
    return f"""CREATE TABLE unsettled AS SELECT plan, slice
        FROM newest FULL JOIN written_sums USING (plan, slice) JOIN plans USING (plan) LEFT JOIN read_sums USING (plan)
        WHERE coalesce(newest.keys, 0) != coalesce({written}, 0)
        OR newest.whole IS DISTINCT FROM written_sums.whole {rare}"""


def _special(copies: bool) -> str:
    """The keys of settled slices whose records are compared one by one; none where all are copied."""
    if copies:
        return "CREATE TABLE special AS SELECT plan, key FROM after WHERE false"
    return f"""CREATE TABLE special AS SELECT DISTINCT plan, key FROM (
        SELECT plan, key, {_SLICE} AS slice FROM after JOIN plans USING (plan)
        WHERE key IS NOT NULL AND (tombstone OR horizon IS NOT NULL OR level != level_out)
        UNION ALL SELECT plan, key, {_SLICE} FROM before WHERE key IS NOT NULL AND level = {BURIED}
    ) ANTI JOIN unsettled USING (plan, slice)"""


def _looked_at(copies: bool) -> str:
    """`looked_at`: the records that are compared one by one. A table of its own, so that the joins need no memory while
    the groups do."""
    # Copies are compared as a whole or not at all.
    keyless = "false" if copies else "key IS NULL"
    columns = 'plan, "offset", key, level, horizon, tombstone, control, transactional, mark'
    looked_at = " UNION ALL ".join(
        f"""SELECT {side} AS side, {columns}, false AS settled FROM {name}
            WHERE (plan, {_SLICE}) IN (SELECT (plan, slice) FROM unsettled) OR {keyless}
        UNION ALL SELECT {side}, {columns}, true FROM {name} SEMI JOIN special USING (plan, key)"""
        for side, name in enumerate(("before", "after"))
    )
    return f"CREATE TABLE looked_at AS {looked_at}"


def _groups(copies: bool, *, keeps_levels: bool) -> str:
    """`groups`: one row per group of the records that are compared. The `role` defines the group:

    key    records that a cleaning judges by their key: all records of a key, in `key`
    copy   records without a key, which must come out unchanged: those with the same offset in `slot` and `mark`
    kept   all records of a lane that copies: like copies, regardless of their key
    aborted, control    records of aborted transactions, control records: like copies, regardless of their key

    A tombstone removed earlier (read at level BURIED) counts only if it is newer than every record read of its key, and
    there is one: it has `risen`, and is the newest record of the key. The columns `in_...` describe the newest. Lanes
    that copy copy removed tombstones, too. Other columns tell what must become of the newest record:

    was_read, n_more    records of the key were read; copies are written in excess of the expected one
    stays       the newest record of the key is in the topic
    may_go      it is a tombstone that this commit may remove: an earlier commit stamped it, its horizon has passed, it
                is clean again now, and it is not the log end (C9)
    is_marker, marker_may_go    a control record was read, and this commit may remove it: by the rules of a tombstone,
                and only if no record of its transaction is read (C10)
    expected_horizon    the delete horizon, epoch microseconds, that the record kept for a key, or a control record,
                must carry: that of a tombstone or marker that stays (C8 to C10)
    """
    records, buried = ("true", "false") if copies else (f"level != {BURIED}", f"level = {BURIED}")
    read, written = f"(side = 0 AND {records})", f"(side = 1 AND {records})"
    earlier, now = f"(side = 0 AND {buried})", f"(side = 1 AND {buried})"
    levels = ", ".join(
        f"coalesce(list_sort(list(level) FILTER ({side})), []) AS {name}" if keeps_levels else f"NULL AS {name}"
        for side, name in ((read, "levels_in"), (written, "levels_out"))
    )
    # A stamp counts only if Firn wrote it: levels 0 and 1 come from any writer.
    stamped = f"({read} AND level >= 2 AND horizon IS NOT NULL)"
    role = (
        "'kept'"
        if copies
        else (
            "CASE WHEN aborted THEN 'aborted' WHEN control THEN 'control' WHEN key IS NULL THEN 'copy' ELSE 'key' END"
        )
    )
    # The log end stays in the topic even without a key (C4); it is quarantined once it is no longer the end.
    level = (
        "level_out"
        if copies
        else (
            f"CASE WHEN role = 'copy' AND coalesce(\"offset\" < kept_from, true) THEN {QUARANTINED} ELSE level_out END"
        )
    )
    mark = "hash(mark, horizon)" if copies else "mark"
    return f"""CREATE TABLE groups AS
    WITH known AS (
        SELECT looked_at.*, now, stamp, clean_below, log_end, kept_from, level_out,
            level != {BURIED} AND coalesce(aborted, false) AS aborted,
            level != {BURIED} AND coalesce(undecided, false) AS undecided,
            level != {BURIED} AND coalesce(ended, false) AS ended
        FROM looked_at JOIN plans USING (plan) LEFT JOIN marks USING (plan, "offset")
    ), roles AS (SELECT *, {role} AS role FROM known), records AS (
        SELECT *, CASE WHEN role = 'key' THEN key END AS of_key, CASE WHEN role != 'key' THEN "offset" END AS slot,
            CASE WHEN role != 'key' THEN {mark} END AS of_mark, {level} AS level_expected
        FROM roles
    ), counted AS (
        SELECT plan, role, of_key AS key, slot, of_mark,
            any_value(key) AS any_key,
            bool_or(settled) AS settled,
            count_if({read}) AS n_in,
            count_if({written}) AS n_out,
            max("offset") FILTER ({read}) AS read_max,
            min("offset") FILTER ({read}) AS in_min,
            max("offset") FILTER ({written}) AS out_max,
            min("offset") FILTER ({written}) AS out_min,
            arg_max_null(tombstone, "offset") FILTER ({read}) AS read_tombstone,
            arg_max_null(mark, "offset") FILTER ({read}) AS read_mark,
            max("offset") FILTER ({stamped}) AS stamped_max,
            arg_max_null(horizon, "offset") FILTER ({stamped}) AS stamped_horizon,
            max("offset") FILTER ({earlier}) AS before_max,
            arg_max_null(mark, "offset") FILTER ({earlier}) AS before_mark,
            max("offset") FILTER (side = 1) AS there_max,
            arg_max_null(tombstone, "offset") FILTER (side = 1) AS there_tombstone,
            arg_max_null(mark, "offset") FILTER ({written}) AS out_mark,
            arg_max_null(horizon, "offset") FILTER ({written}) AS out_horizon,
            count_if({now}) AS n_buried,
            arg_max_null(mark, "offset") FILTER ({now}) AS buried_mark,
            count_if({written} AND level != level_expected) AS n_level,
            max(level) FILTER ({written} AND level != level_expected) AS a_level,
            bool_or(ended) AS ended,
            count_if({read} AND undecided) AS n_undecided,
            count_if({read} AND "offset" = log_end) AS end_in,
            count_if({written} AND level != {QUARANTINED} AND "offset" = log_end) AS end_out,
            {levels}
        FROM records GROUP BY plan, role, of_key, slot, of_mark
    )
    SELECT plan, role, coalesce(key, any_key) AS key, settled, n_in, n_out, in_min, out_max, out_min, out_mark,
        out_horizon, n_buried, buried_mark, n_level, a_level, n_undecided,
        end_in, end_out, levels_in, levels_out, log_end,
        coalesce(before_max > read_max, false) AS risen,
        CASE WHEN risen THEN before_max ELSE read_max END AS in_max,
        -- Where values were not read, what was written at its offset tells it.
        CASE WHEN risen THEN true ELSE
            coalesce(read_tombstone, CASE WHEN there_max = read_max THEN there_tombstone END, false)
        END AS in_tombstone,
        CASE WHEN risen THEN before_mark ELSE read_mark END AS in_mark,
        CASE WHEN NOT risen AND stamped_max = read_max THEN stamped_horizon END AS in_horizon,
        greatest(n_out - least(n_in, 1), 0) AS n_more,
        role = 'key' AND n_in > 0 AS was_read,
        was_read AND out_max IS NOT DISTINCT FROM in_max AS stays,
        -- No segment outside the inputs can hold an older offset (C7).
        clean_below IS NULL OR in_max < clean_below AS is_clean,
        -- The newest record must outlive, in a commit, the records that it supersedes (C2).
        in_min = in_max AS alone,
        in_horizon IS NOT NULL AND in_horizon <= now AND is_clean AND in_max < kept_from AS past_horizon,
        was_read AND in_tombstone AND past_horizon AND alone AS may_go,
        role = 'control' AND n_in > 0 AS is_marker,
        is_marker AND ended AND past_horizon AS marker_may_go,
        CASE WHEN CASE WHEN role = 'control' THEN ended ELSE in_tombstone END THEN
            CASE WHEN in_horizon IS NOT NULL AND alone THEN in_horizon
            -- If the retention is unknown, any new delete horizon is accepted, but its absence is not.
            WHEN is_clean THEN coalesce(stamp, out_horizon, 0) END
        END AS expected_horizon
    FROM counted JOIN plans USING (plan)"""


def _offsets(copies: bool, closely: bool) -> list[str]:
    """`repeats`: the number of records that share an offset; `offsets`: those offsets, and whether the records differ.

    Offsets are counted in words of 64 neighbouring ones, a bit for each.
    """
    # Without values, a difference can't be seen; lanes that copy keep records that landed twice (C13).
    differ = "min(mark) != max(mark)" if closely else "true"
    return [
        f"""CREATE TABLE repeats AS SELECT plan, sum(n - bit_count(bits))::BIGINT AS repeated
            FROM (SELECT plan, count(*) AS n, bit_or(1::UBIGINT << ("offset" & 63)::UBIGINT) AS bits
            FROM before WHERE level != {BURIED} GROUP BY plan, "offset" & -64) GROUP BY plan""",
        f"""CREATE TABLE offsets AS SELECT plan, "offset", count(*) AS times, min(key) AS key, {differ} AS differ
            FROM before SEMI JOIN (FROM repeats WHERE repeated > 0) USING (plan)
            WHERE level != {BURIED} AND {str(not copies).lower()} GROUP BY plan, "offset" HAVING times > 1""",
    ]


def _left_behind() -> str:
    """`left_behind`: records that wrongly stayed in place.

    The tail holds each key once (C16), so a record that supersedes one of them is in the head. A tombstone was due if
    it is clean and not stamped yet (C8), or past its horizon and not the log end (C9).
    """
    return f"""CREATE TABLE left_behind AS SELECT * FROM (
        SELECT plan, "offset", key, superseded IS NOT NULL AS superseded,
            tombstone AND (clean_below IS NULL OR "offset" < clean_below)
                AND (horizon IS NULL OR (horizon <= now AND "offset" < kept_from)) AS due
        FROM {IN_PLACE} JOIN plans USING (plan) LEFT JOIN (
            SELECT DISTINCT plan, key, true AS superseded FROM {BEFORE}
            SEMI JOIN (SELECT DISTINCT plan FROM {IN_PLACE}) USING (plan)
            WHERE level < {TAIL} AND level != {BURIED} AND key IS NOT NULL
        ) USING (plan, key)
    ) WHERE superseded OR due"""


_COMMIT, _ABORT = "0001", "0000"
"""Types of control records: bytes 3 and 4 of the key (Kafka's ControlRecordType)."""


def _transactions(copies: bool, layout: Layout) -> list[str]:
    """`marks`: records that were aborted, are undecided, or are markers whose transaction has no records left (C10).

    Derived from the contract alone: a producer's records up to and including its next marker are one transaction. A
    transaction is numbered by the markers before it, and judged as a whole.
    """
    if copies or not layout.transactions:
        return ['CREATE TABLE marks (plan INTEGER, "offset" BIGINT, aborted BOOLEAN, undecided BOOLEAN, ended BOOLEAN)']
    return [
        # A cleaning keeps committed records only, so levels 2 and 3 need no second judgement.
        f"""CREATE VIEW events AS
        SELECT plan, producer, "offset", commit, data, bool_and(open) AS open FROM (
            SELECT plan, producer, "offset",
                CASE WHEN control THEN CASE hex(key[3:4]) WHEN '{_COMMIT}' THEN true WHEN '{_ABORT}' THEN false END END
                    AS commit,
                NOT control AS data, NOT control AND level < 2 AS open
            FROM before JOIN plans USING (plan) WHERE level != {BURIED} AND (control OR transactional)
            UNION ALL SELECT plan, producer, "offset", commit, false, false FROM markers
        ) GROUP BY plan, producer, "offset", commit, data""",
        """CREATE TABLE marks AS
        SELECT plan, "offset", bool_or(open AND coalesce(NOT ending, false)) AS aborted,
            bool_or(open AND ending IS NULL) AS undecided, bool_or(commit IS NOT NULL AND NOT any_data) AS ended
        FROM (
            SELECT *, bool_or(commit) OVER whole AS ending, bool_or(data) OVER whole AS any_data
            FROM (SELECT *, count(commit) OVER (PARTITION BY plan, producer ORDER BY "offset"
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS number FROM events)
            WINDOW whole AS (PARTITION BY plan, producer, number)
        ) GROUP BY plan, "offset" HAVING aborted OR undecided OR ended""",
    ]


_MEANT = '("offset" < below AND NOT control)'
"""True when a request covers the record."""
_LAST = f'(level != {BURIED} AND "offset" = log_end)'
"""True for the log end, which stays (C4)."""


def _without_erased(layout: Layout) -> list[str]:
    """`before`, the records of `come` that must be written; the number of the others; and `remaining`, requested
    records that are still there."""
    control = "control" if layout.transactions else "false AS control"
    every = " UNION ALL ".join(
        f"SELECT plan, key, {control if name == IN_PLACE else 'control'} FROM {name}"
        for name in ("come", "after", IN_PLACE)
    )
    return [
        f"""CREATE TABLE named AS SELECT plan, key, max(below) AS below FROM (
            SELECT DISTINCT plan, key FROM ({every}) WHERE key IS NOT NULL AND NOT control
        ) AS keys JOIN requests USING (plan) WHERE digest = {layout.digest("key")}
        GROUP BY plan, key""",
        f"""CREATE VIEW before AS SELECT come.* FROM come JOIN plans USING (plan) LEFT JOIN named USING (plan, key)
            WHERE NOT coalesce({_MEANT}, false) OR {_LAST}""",
        f"""INSERT INTO erased SELECT plan, count(*) FROM come JOIN plans USING (plan) JOIN named USING (plan, key)
            WHERE {_MEANT} AND NOT {_LAST} AND level != {BURIED} GROUP BY plan""",
        f"""CREATE VIEW remaining AS SELECT plan, "offset", key, lies FROM (
            SELECT plan, "offset", key, level, control, 'written' AS lies FROM after
            UNION ALL SELECT plan, "offset", key, level, {control}, 'in a segment left in place' FROM {IN_PLACE}
        ) JOIN plans USING (plan) JOIN named USING (plan, key) WHERE {_MEANT} AND NOT {_LAST}""",
    ]


_LEVELS = f"""CREATE VIEW levels AS SELECT * FROM (
    SELECT plan, in_max AS "offset", key, unnest(levels_in) AS level_in, unnest(levels_out) AS a_level
    FROM groups WHERE n_in = n_out
) WHERE a_level != level_in AND NOT (level_in = {TAIL} AND a_level = {RUN})"""
"""Records whose level has changed."""


def derive_retention(duck: Duck, layout: Layout) -> None:
    """Create the table `segments` that the promises of lane `retain` query, and `plans`."""
    _plans(duck, layout)
    rows = [
        {"plan": plan, "number": number, **one._asdict()}
        for plan, case in enumerate(layout.cases)
        for number, one in enumerate(case.segments)
    ]
    with duck.seeing(told=pa.Table.from_pylist(rows)):
        duck.run(
            """CREATE TABLE segments AS SELECT told.*, "first" AS "offset", NULL AS key, kept_from, now,
                coalesce(sum(bytes) OVER (PARTITION BY plan ORDER BY number
                    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0)::BIGINT AS later_bytes,
                max("last") FILTER (goes) OVER (PARTITION BY plan) AS dropped_through,
                retention_ms >= 0 AND coalesce(now // 1000 - since_ms > retention_ms, false) AS is_old,
                retention_bytes >= 0 AND later_bytes >= retention_bytes AS is_beyond
            FROM told JOIN plans USING (plan)"""
        )
