"""C1 to C10, C13 to C16, C24, C27, C30: the judge names exactly the promises that a result breaks.

In each table, a line is a plan of its own; all plans of a table are judged together. A line says which promise it is
about, what differs from the right result (see `judged`), and what the judge says: broken promises, offsets of samples.
Where it has a `*`, only bits differ, which no count and no offset tells: it takes values to see them, or a fingerprint.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from firnlake_expectations.case import AFTER, BEFORE, Case, Deletes, Listed
from firnlake_expectations.judge import judge
from firnlake_expectations.promises import PROMISES
from tests.support.judged import (
    CLEANING,
    KAFKAS,
    SCHEMA,
    TRANSACTIONS,
    Planned,
    case_of,
    held,
    judged_on,
    part,
    plan,
    said,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firnlake_expectations.case import Verdict

SECRET = bytes(range(32))


class Table(NamedTuple):
    """The right result, what differs from it, and what the judge says."""

    right: Planned
    lines: str
    schema: pa.Schema = SCHEMA
    below: int | None = None
    """Offset below which the records of key `a` are to be erased."""


TABLES = {
    "clean": Table(
        CLEANING,
        """
        C1 right                                  |                   | kept
        C2 the newest record is dropped           | -1                | newest_record_kept@1 counts
        C2 an older one instead                   | -2 +a=1@0         | newest_record_kept@2
        C2 an older one as well                   | +a=1@0            | one_record_per_key@2 newest_record_kept@2 counts
        C6 the record of an empty key is dropped  | -8                | newest_record_kept@8 counts
        C9 a key is resurrected                   | -5 +d=v@4         | newest_record_kept@5 tombstones_kept@5 counts
        C9 a tombstone goes before its horizon    | -7                | tombstones_kept@7 counts
        C9 a tombstone goes at first sight        | -3                | tombstones_kept@3 counts
        C2 a tombstone goes, its value too        | -12               | tombstones_kept@12 counts
        C9 a tombstone goes by a stranger's stamp | -10               | tombstones_kept@10 counts
        C9 a tombstone stays past its horizon     | =e=@6~-1m         | tombstones_gone@6 counts
        C9 a removed tombstone is not kept        | -6                | tombstones_gone@6
        C9* a removed tombstone is changed        | =e=@6,1h^-2~-1m   | tombstones_gone@6
        C9 another record is with the removed     | =b=v@1^-2         | newest_record_kept@1 tombstones_gone@1 counts
        C8 a tombstone is not stamped             | =c=@3             | delete_horizons@3
        C8 a horizon is moved                     | =f=@7~1h          | delete_horizons@7
        C8 a horizon is not renewed               | =h=@12~-1m        | delete_horizons@12
        C8 a value has a horizon                  | =b=v@1~1h         | delete_horizons@1
        C1* a value is changed                    | =b=w@1            | records_unchanged@1
        C1 an empty value becomes NULL            | =empty=@8         | records_unchanged@8
        C1* a timestamp is changed                | =b=v@1,1h         | records_unchanged@1
        C1 a record is invented                   | +new=v@13         | records_unchanged@13 counts
        C1 a record is renumbered                 | -1 +b=v@13        | newest_record_kept@1 records_unchanged@1
        C5 a record without a key is lost         | -9                | no_null_keys@9 counts
        C5* a record without a key is changed     | =-=w@9^-1         | no_null_keys@9
        C5 a record without a key stays visible   | =-=v@9            | no_null_keys@9 counts
        C5 two records without a key become one   | <-=x@13 in=15 superseded=4 | no_null_keys@13 counts
        C14 a record with a key is quarantined    | =b=v@1^-1         | output_level@1 counts
        C14 a record is at the wrong level        | =b=v@1^           | output_level@1
        C4 the log end goes                       | -20               | tombstones_kept@20 log_end_kept@20 counts
        C4 the plan names too low a log end       | log_end_offset=19 | log_end_kept@20
        C4 the visible end may be older           | kept_from=9       | no_null_keys@9
        C9 nothing that was removed is needed     | <a=@1^-2 <y=@16^-2 | kept
        C9 what nothing needs comes back          | <y=@16^-2 +y=@16~1h | records_unchanged@16 counts
        C24 nothing is read, nothing is written   | nothing           | kept
        C24 more are read and superseded, it says | in=15 superseded=4 | counts
        C24 one is kept, not quarantined, it says | out=10 quarantined=0 | counts
        C24 what it says does not add up          | tombstones_removed=0 | counts
        C24 its figure is not the table's         | figures=(("log_end","1","2"),) | figures_match
        """,
    ),
    "clean below an offset": Table(
        CLEANING.but("clean_below=4 =e=@6~-1m =d=@5 =g=@10 =h=@12 out=10 tombstones_removed=0"),
        """
        C7 right: neither removed nor stamped |              | kept
        C7 a tombstone is stamped             | =d=@5~1h     | delete_horizons@5
        C7 a tombstone is removed             | =e=@6^-2~-1m | tombstones_kept@6 tombstones_gone@6 counts
        """,
    ),
    "two records at an offset": Table(
        CLEANING.but("in=15 superseded=4 repeated=1"),
        """
        C1 one was read twice                   | <b=v@1            | kept
        C5 one without a key was read twice     | <-=v@9            | kept
        C8 a stamped tombstone was read twice   | <h=@12^2~-1m      | kept
        C8 one has landed again, unstamped      | <f=@7^0           | kept
        C24 one was read twice, it does not say | <b=v@1 repeated=0 | counts
        C1 they have different values           | <b=w@1            | distinct_offsets@1
        C1 they have different keys             | <other=v@1        | newest_record_kept@1 distinct_offsets@1 counts
        """,
    ),
    "a late record below a removed tombstone": Table(
        CLEANING.but("<i=v@14^0 <i=@15^-2~-1m +i=@15~1h in=16 out=10 superseded=4 restored=1"),
        """
        C9 right: the tombstone comes back   |             | kept
        C9 the late record is kept instead   | -15 +i=v@14 | newest_record_kept@15 tombstones_kept@15 counts
        C9 the tombstone has its old horizon | =i=@15~-1m  | delete_horizons@15
        """,
    ),
    "a log end without a key": Table(
        plan("log_end_offset=9 in=3 out=2 quarantined=1", "b=v@1 -=v@5 -=v@9", "b=v@1 -=v@5^-1 -=v@9"),
        """
        C4 right: it stays           |  | kept
        C4 it goes to the quarantine | =-=v@9^-1 out=1 quarantined=2 | log_end_kept@9 no_null_keys@9
        """,
    ),
    "a tombstone that may go": Table(
        plan("in=1 tombstones_removed=1", "e=@6^2~-1m", "e=@6^-2~-1m"),
        """
        C9 right: nothing is left  |    | kept
        C9 there is no trace of it | -6 | tombstones_gone@6
        """,
    ),
    "full": Table(
        replace(
            CLEANING.but("lane='full' level_out=3 _t=v@30 _u=@31~1m"),
            written=[one._replace(level=3) if one.level == 2 else one for one in CLEANING.written],
        ),
        """
        C16 right                                   |               | kept
        C2 a superseded record is left in place     | _b=v@13       | one_record_per_key@13
        C9 what was removed supersedes nothing there | <t=@33^-2~-1m | kept
        """,
    ),
    "full and one record": Table(
        plan("lane='full' level_out=3 in=1 out=1", "b=v@1", "b=v@1"),
        """
        C3 nothing is written                     | -1         | newest_record_kept@1 counts
        C8 a tombstone without a stamp is left    | _w=@13     | tombstones_gone@13
        C8 which is not clean                     | _w=@13 clean_below=13 | kept
        C9 a tombstone past its horizon is left   | _w=@13~-1m | tombstones_gone@13
        C9 a tombstone before its horizon is left | _w=@13~1m  | kept
        C9 one that is not clean                  | _w=@13~-1m clean_below=13 | kept
        C9 one below what may be the log end      | _w=@13~-1m kept_from=14 | tombstones_gone@13
        C4 one that may be the log end            | _w=@13~-1m kept_from=13 | kept
        """,
    ),
    "merge": Table(
        replace(
            CLEANING.but("lane='merge' level_out=1 out=14 superseded=0 tombstones_removed=0 quarantined=0"),
            written=[one._replace(level=1) for one in CLEANING.read],
        ),
        """
        C13 right                            |            | kept
        C13 a record was read twice          | <b=v@1 +b=v@1 in=15 out=15 | kept
        C13 a record is lost                 | -0         | same_records@0 counts
        C13 a record is there twice          | +b=v@1     | same_records@1 counts
        C13 one is lost, another there twice | -0 +b=v@1  | same_records@0,1
        C13* a value is changed              | =b=w@1     | same_records@1
        C13 a record has got a key           | =k=v@9     | same_records@9
        C13 a horizon is lost                | =z=@20     | same_records@20
        C13 a record keeps its old level     | =f=@7^2~1m | output_level@7
        """,
    ),
    "transactions": Table(
        plan(
            "in=12 out=7 markers=((4,15,False),(1,16,False)) aborted=4 markers_removed=1",
            "1>a=1@0 b=1@1 2>b=2@2 2>a=@3 2>-=3@4 1>commit@5 2>abort@6 3>abort@7^2~-1m 3>commit@8 4>c=1@9 "
            "5>d=1@10^2 leader@11",
            "1>a=1@0 b=1@1 1>commit@5 2>abort@6 5>d=1@10 leader@11 3>commit@8~1h",
        ),
        """
        C10 right                              |                | kept
        C10 an aborted record stays            | +2>b=2@2       | aborted_records_gone@2 counts
        C10 an aborted record is quarantined   | +2>-=3@4^-1    | aborted_records_gone@4 counts
        C10 a committed record goes            | -0             | newest_record_kept@0 counts
        C10 an aborted record supersedes       | -1             | newest_record_kept@1 counts
        C10 what an earlier cleaning kept goes | -10            | newest_record_kept@10 counts
        C10 a marker goes before its records   | -6             | markers_kept@6 counts
        C10 a marker goes unstamped            | -8             | markers_kept@8 counts
        C10 another control record goes        | -11            | markers_kept@11 counts
        C10 a marker is invented               | +7>commit@12   | markers_kept@12 counts
        C10 a marker stays past its horizon    | +3>abort@7~-1m | markers_kept@7 counts
        C10 a marker is not stamped            | =3>commit@8    | delete_horizons@8
        C10 a marker is stamped too early      | =2>abort@6~1h  | delete_horizons@6
        C1* the epoch of a record is lost      | =1.1>a=1@0     | records_unchanged@0
        C10 a transaction has not ended        | markers=()     | newest_record_kept@9 aborted_records_gone@9 counts
        C24 some are superseded, it says       | aborted=3 superseded=1 | counts
        """,
        TRANSACTIONS,
    ),
    "committed transactions": Table(
        plan("in=2 out=2 markers=((1,5,True),)", "1>a=1@0 b=1@1", "1>a=1@0 b=1@1"),
        """
        C10 right                       |            | kept
        C10 the plan knows of no marker | markers=() | aborted_records_gone@0
        """,
        TRANSACTIONS,
    ),
    "erase": Table(
        plan(
            "lane='erase' level_out=0 log_end_offset=10 in=8 out=6 erased=2",
            "a=v@0^ a=@1^-2~-1m b=v@2^ c=@3^-2~-1m a=@4^2~-1m b=@5^2~-1m c=v@6^3 -=v@7^1 a=v@9^1 z=v@10^1",
            "b=v@2^ c=@3^-2~-1m b=@5^2~-1m c=v@6^3 -=v@7^1 a=v@9^1 z=v@10^1",
            "x=v@20 a=v@21",
        ),
        """
        C30 right                           |              | kept
        C30 a requested record stays        | +a=v@0^      | requested_records_gone@0 other_records_unchanged@0 counts
        C30 a requested tombstone stays     | +a=@4^2~-1m  | requested_records_gone@4 other_records_unchanged@4 counts
        C30 a removed tombstone stays       | +a=@1^-2~-1m | requested_records_gone@1 other_records_unchanged@1
        C30 a requested record replaces b   | -2 +a=v@0^   | requested_records_gone@0 other_records_unchanged@0,2
        C30 a requested record is left      | _a=v@3       | requested_records_gone@3
        C30 a removed tombstone is left     | _a=@3^-2~-1m | requested_records_gone@3
        C30 another record goes             | -2           | other_records_unchanged@2 counts
        C30 the removed tombstone of c goes | -3           | other_records_unchanged@3
        C30 a record without a key goes     | -7           | other_records_unchanged@7 counts
        C30 a newer record of the key goes  | -9           | other_records_unchanged@9 counts
        C4 the log end goes                 | -10          | other_records_unchanged@10 log_end_kept@10 counts
        C1* a value is changed              | =b=w@2^      | other_records_unchanged@2
        C1 a horizon is lost                | =b=@5^2      | other_records_unchanged@5
        C30 a record is there twice         | +b=v@2^      | other_records_unchanged@2 counts
        C30 a record is invented            | +n=v@8^1     | other_records_unchanged@8 counts
        C30 a landed record becomes a tail  | =b=v@2^3     | levels_kept@2
        C30 a run becomes a tail            | =b=@5^3~-1m  | levels_kept@5
        C30 a run becomes landed            | =b=@5^0~-1m  | levels_kept@5
        C30 a removed tombstone is visible  | =c=@3^2~-1m  | levels_kept@3 counts
        C16 a tail may become a run         | =c=v@6^2     | kept
        """,
        below=8,
    ),
    "erase the log end": Table(
        plan("lane='erase' level_out=0 log_end_offset=9 in=2 out=2", "b=v@2 a=v@9", "b=v@2^1 a=v@9^1"),
        """
        C4 right: it stays |                   | kept
        C4 it goes         | -9 out=1 erased=1 | other_records_unchanged@9 log_end_kept@9 counts
        """,
        below=10,
    ),
    "strangers": Table(
        CLEANING,
        """
        C1 a record of another partition is written | +99/b=v@1 | one_topic_partition@1
        C1 it breaks no promise of another plan     |           | kept
        """,
    ),
}


class Line(NamedTuple):
    """A line of a table."""

    title: str
    changes: str
    said: str

    @property
    def only_bits(self) -> bool:
        return self.title.split()[0].endswith("*")


def lines_of(text: str) -> list[Line]:
    return [Line(*(cell.strip() for cell in line.split(" |"))) for line in text.strip().splitlines()]


@cache
def found_in(name: str, way: str = "values") -> dict[Line, Verdict]:
    """What the judge finds about each line of a table. It compares values; or takes the `fingerprint` of a cleaner that
    has read what is right; or has only `sums`: that of a cleaner that has read what it wrote."""
    own = TABLES[name]
    lines = lines_of(own.lines)
    plans = [own.right.but(line.changes).numbered(at) for at, line in enumerate(lines)]
    read = [
        own.right.numbered(at).written if lines[at].only_bits and way == "fingerprint" else one.written
        for at, one in enumerate(plans)
    ]
    found = judged_on(plans, None if way == "values" else read, schema=own.schema, **requested(own.below))
    return dict(zip(lines, found, strict=True))


def requested(below: int | None, secret: bytes = SECRET) -> dict[str, Any]:
    """A request for key `a`, as a case has it; nothing if there is none."""
    digest = hmac.digest(SECRET, b"a", "sha256")
    return {"secret": secret, "digests": ((digest, below),)} if below else {}


@pytest.mark.parametrize("way", ["values", "fingerprint", "sums"])
@pytest.mark.parametrize("name", TABLES)
def test_exactly_what_is_broken_is_named(name: str, way: str) -> None:
    answers = {line: said(found) for line, found in found_in(name, way).items()}
    assert answers == {line: "kept" if line.only_bits and way == "sums" else line.said for line in answers}


VISIBLE = held("a=v@0^ b=v@1^3 -=v@2^ a=@3^3~-1m a=@3^3~-1m c=v@4")
"""Records of a data file. Equality deletes hide b, and a position delete the record at place 0."""
CONVERT = plan("lane='convert' level_out=0 log_end_offset=4 in=4 out=4 deleted=2", "", "")
CONVERSIONS = """
    C27 right                              | 0 / 1     | kept
    C27 both are in one file               | 0,1       | kept
    C27 both files name the same           | 0 / 0,1   | kept
    C27 the equality delete stays          | 0 / b,x   | kept
    C27 b is visible                       | 0         | same_visible_records@1 counts
    C27 the record at place 0 is visible   | 1         | same_visible_records@0 counts
    C27 all are visible                    |           | same_visible_records@0,1 counts
    C27 another record is hidden instead   | 0 / 2     | same_visible_records@1,2
    C27 a copy is hidden as well           | 0 / 1,3   | same_visible_records@3 counts
    C27 both copies are hidden as well     | 0 / 1,3,4 | same_visible_records@3 counts
    C27 one without a key is hidden        | 0 / 1,2   | same_visible_records@2 counts
    C27 the last one is hidden             | 0 / 1,5   | same_visible_records@4 counts
    C27 the delete is older than the file  | 0 / old 1 | same_visible_records@1 counts
"""


def deletes(text: str) -> tuple[Deletes, ...]:
    """Delete files, parted by `/`: of places, of places in an older file, or of keys."""

    def one(name: str) -> Deletes:
        words = name.removeprefix("old ").split(",")
        keyed = not words[0].isdigit()

        def read() -> Iterator[pa.RecordBatch]:
            if keyed:
                yield pa.RecordBatch.from_pydict({"key": pa.array(map(str.encode, words))})
            else:
                yield pa.RecordBatch.from_pydict({"file_path": ["file"] * len(words), "pos": list(map(int, words))})

        return Deletes(name, 0 if name.startswith("old") else 2, "place", None, ("key",) if keyed else (), read)

    return tuple(one(name.strip()) for name in text.split("/") if name.strip())


@cache
def conversions() -> dict[Line, Verdict]:
    """What the judge finds when the deletes of each line are in the place of those before."""
    lines = lines_of(CONVERSIONS)
    cases = [converted(CONVERT.numbered(at), line.changes) for at, line in enumerate(lines)]
    return dict(zip(lines, judge(cases, SCHEMA, KAFKAS, samples="full"), strict=True))


def converted(plan: Planned, after: str) -> Case:
    records = table(replace(plan, read=VISIBLE).numbered(plan.claim.partition).read)
    sides = ((BEFORE, "b,x / 0"), (AFTER, after))
    parts = [replace(part(side, records), name="file", listed=Listed(1, "place", deletes(one))) for side, one in sides]
    return Case(plan.claim, tuple(parts), 0)


def test_c27_exactly_the_same_records_are_visible() -> None:
    answers = {line: said(found) for line, found in conversions().items()}
    assert answers == {line: line.said for line in answers}
    wrong = [CONVERT.but(told) for told in ("in=5", "out=5", "deleted=5", "superseded=5")]
    judged = judge([converted(one, "0 / 1") for one in wrong], SCHEMA, KAFKAS)
    assert [said(one) for one in judged] == ["counts"] * 4


def test_every_rule_of_every_promise_is_broken_by_a_line() -> None:
    verdicts = [one for name in TABLES for one in found_in(name).values()] + list(conversions().values())
    observed = [(one.name, one.observed) for verdict in verdicts for one in verdict.failures]
    # Those of lane retain, which reads segments alone, are broken in test_commits.
    rules = {
        (promise.name, rule.breach)
        for promise in PROMISES
        for rule in promise.rules
        if rule.view not in ("", "segments")
    }
    unbroken = {own for own in rules if not any(own[0] == name and own[1] in said for name, said in observed)}
    assert {name for name, _ in unbroken} == {"expect_whole_files"}


@pytest.mark.parametrize(("side", "records"), [(BEFORE, 14), (AFTER, 11)])
def test_c23_a_file_with_another_number_of_records_than_its_manifest_says(side: str, records: int) -> None:
    case = case_of(CLEANING)
    parts = [replace(one, name="x.parquet", records=99) if one.side == side else one for one in case.parts]
    (found,) = judge([replace(case, parts=tuple(parts))], SCHEMA, KAFKAS)
    (failure,) = found.failures
    assert (failure.name, failure.broken) == ("expect_whole_files", 1)
    assert [one.found for one in failure.samples] == [f"record count {records} in x.parquet, not 99"]


@pytest.mark.parametrize(("name", "promise"), [("clean", "records_unchanged"), ("erase", "other_records_unchanged")])
def test_c1_a_cleaner_that_has_read_something_else_is_not_believed(name: str, promise: str) -> None:
    """Its plan is looked at closely, the other one is not."""
    own = TABLES[name]
    plans = [own.right.numbered(at) for at in range(2)]
    taken = [plans[0].written[1:], plans[1].written]
    found = judged_on(plans, taken, **requested(own.below))
    assert [said(one) for one in found] == [promise, "kept"]
    assert [one.closely for one in found] == [True, False]


def test_c30_another_secret_names_nobody() -> None:
    own = TABLES["erase"].right
    (found,) = judged_on([own], **requested(8, b"x" * 32))
    assert said(found) == "other_records_unchanged@0,1,4 counts"
