"""Plans as the judge sees them, in the words of `records`: what was read, what was written, and what the plan claims.

    b=v@1^2          at level 2; ``^`` alone is NULL, and a record without it is at the level of its side
    c=@3~1h          a tombstone whose delete horizon is an hour after NOW, ``~-1m`` a minute before
    1>a=1@0          of a transaction of producer 1, ``1.2>`` of its epoch 2; ``1>commit@5`` and ``1>abort@5`` end it
    leader@11        a control record that ends no transaction

What differs from a right result, parted by white space:

    +b=v@1           written as well           -1               what was written at offset 1 is not
    =b=w@1           written in place of what is written at its offset
    <b=v@1           read as well              _b=v@1           in a segment left in place as well
    superseded=4     the claim says so, in= is the number of records read, out= of those kept
    nothing          begin with no record at all
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from firnlake_expectations.case import AFTER, BEFORE, IN_PLACE, Case, Claim, JudgedColumns, Part, Verdict
from firnlake_expectations.checkpoint import verdicts
from firnlake_expectations.fingerprint import fingerprint
from firnlake_expectations.judge import judge
from tests.support.records import NOW, History, Record, rows_of, span

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from firnlake_expectations.wording import Shown
from collections.abc import Callable

KAFKAS: Final = JudgedColumns()
"""Each column under Kafka's own name."""
_STATE = [("level", pa.int32()), ("delete_horizon", pa.timestamp("us", tz="UTC"))]
_OF_TRANSACTIONS = [("is_control", pa.bool_()), ("is_transactional", pa.bool_())]
SCHEMA: Final = pa.schema([*rows_of([]).schema, *_STATE])
TRANSACTIONS: Final = pa.schema(
    [*SCHEMA, *_OF_TRANSACTIONS, ("producer_id", pa.int64()), ("producer_epoch", pa.int32())]
)
_WORD = re.compile(
    r"(?:(?P<producer>\d+)(?:\.(?P<epoch>\d+))?>)?(?P<record>[^\^~]+)(?P<level>\^-?\d*)?(?:~(?P<horizon>\S+))?"
)
_CONTROLS = {"abort": bytes(4), "commit": b"\0\0\0\1", "leader": b"\0\0\0\2"}


class Held(NamedTuple):
    """A record as a data file holds it."""

    record: Record
    level: int | None = 1
    horizon_ms: int | None = None
    producer: int | None = None
    epoch: int = 0
    control: bool = False


Rows = Sequence[Held]


def held(text: str, level: int = 1) -> list[Held]:
    """The records in ``text``, at ``level`` unless they say otherwise."""
    return [_held(word, level) for word in text.split()]


def _held(word: str, level: int) -> Held:
    match = _WORD.fullmatch(word)
    assert match is not None, word
    name, _, offset = match["record"].partition("@")
    if name in _CONTROLS:
        record = Record(int(offset), _CONTROLS[name], bytes(6))
    else:
        (record,) = History().records(match["record"])
    own = level if match["level"] is None else int(match["level"][1:]) if match["level"] != "^" else None
    horizon = NOW + span(match["horizon"]) if match["horizon"] else None
    producer = int(match["producer"]) if match["producer"] else None
    return Held(record, own, horizon, producer, int(match["epoch"] or 0), name in _CONTROLS)


def table(records: Iterable[Held], schema: pa.Schema = SCHEMA) -> pa.Table:
    """The records as Arrow has them."""
    every = list(records)
    columns = {
        "level": [one.level for one in every],
        "delete_horizon": [one.horizon_ms and one.horizon_ms * 1000 for one in every],
        "is_control": [one.control for one in every],
        "is_transactional": [one.producer is not None for one in every],
        "producer_id": [one.producer for one in every],
        "producer_epoch": [one.epoch for one in every],
    }
    plain = rows_of(one.record for one in every)
    return pa.table(
        [columns.get(name, plain[name] if name in plain.column_names else None) for name in schema.names], schema
    )


def part(side: str, records: pa.Table) -> Part:
    """A table in memory as a part of a side."""

    def read(columns: Sequence[str] | None) -> Iterator[pa.Table]:
        yield records if columns is None else records.select(list(columns))

    return Part(side, read)


@dataclass(frozen=True)
class Planned:
    """A plan: its claim, and the records that it has read, written and left in place."""

    claim: Claim
    read: Rows
    written: Rows
    left: Rows = ()

    def but(self, changes: str) -> Planned:
        """The plan with ``changes``, as above."""
        changed = self
        for word in changes.split():
            changed = changed._but(word)
        return changed

    def _but(self, word: str) -> Planned:
        sign, text = word[0], word[1:]
        if word == "nothing":
            return Planned(replace(self.claim, counts=Counter()), (), ())
        if sign == "<":
            return replace(self, read=[*self.read, *held(text)])
        if sign == "_":
            return replace(self, left=[*self.left, *held(text, 3)])
        if sign not in "+-=":
            name, _, value = word.partition("=")
            told, name = literal_eval(value), _SHORT.get(name, name)
            changed = (
                {name: told} if hasattr(self.claim, name) else {"counts": Counter({**self.claim.counts, name: told})}
            )
            return replace(self, claim=replace(self.claim, **changed))
        added = [] if sign == "-" else held(text, self.claim.level_out)
        gone = {int(text)} if sign == "-" else {one.record.offset for one in added if sign == "="}
        return replace(self, written=[*(one for one in self.written if one.record.offset not in gone), *added])

    def numbered(self, number: int) -> Planned:
        """As the plan of topic partition ``number``; records of another partition than 0 are of that one."""

        def moved(records: Rows) -> Rows:
            return [
                one if one.record.partition else one._replace(record=one.record._replace(partition=number))
                for one in records
            ]

        claim = replace(self.claim, partition=number, plan_id=f"plan-{number}")
        return Planned(claim, moved(self.read), moved(self.written), moved(self.left))


_SHORT = {"in": "records_in", "out": "records_out"}
CLAIM: Final = Claim(
    table="db.orders", lane="clean", plan_id="clean/orders-0", topic="orders", partition=0, now_ms=NOW, level_out=2,
    clean_below=None, log_end_offset=20, delete_retention_ms=span("1h"),
    counts=Counter(
        segments_in=64, segments_out=2, bytes_in=12_300_000, bytes_out=8_100_000, records_in=14, records_out=9,
        superseded=3, tombstones_removed=1, quarantined=1,
    ),
)  # fmt: skip
CLEANING: Final = Planned(
    CLAIM,
    held(
        "a=1@0^ b=v@1 a=2@2 c=@3 d=v@4 d=@5 e=@6^2~-1m f=@7^2~1m empty=empty@8 -=v@9 g=@10~-1m h=v@11 h=@12^2~-1m "
        "z=@20^2~-1m"
    ),
    held("b=v@1 a=2@2 c=@3~1h d=@5~1h e=@6^-2~-1m f=@7~1m empty=empty@8 -=v@9^-1 g=@10~1h h=@12~1h z=@20~-1m", 2),
)
"""A right cleaning of each fate: superseded (a, d, h), stamped (c, d), past its horizon (e) or not (f), without a key,
stamped by a stranger (g), stamped before its older record came (h), the log end (z)."""


def plan(changes: str, read: str, written: str, left: str = "") -> Planned:
    """A plan whose claim is that of CLEANING with ``changes``, and all counts 0 that it does not name."""
    claim = CLEANING.but(f"nothing {changes}").claim
    return Planned(claim, held(read), held(written, claim.level_out), held(left, 3))


def case_of(one: Planned, schema: pa.Schema = SCHEMA) -> Case:
    """The case of a plan, judged by its values."""
    sides = ((BEFORE, one.read), (AFTER, one.written), (IN_PLACE, one.left))
    return Case(one.claim, tuple(part(side, table(records, schema)) for side, records in sides))


def judged_on(
    plans: Sequence[Planned],
    taken: Sequence[Rows] | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    samples: Shown = "full",
    **requests: Any,
) -> list[Verdict]:
    """What the judge finds about each of ``plans``, judged together; ``requests`` are those of each case.

    The cleaner has taken its fingerprints of the records ``taken``; None: values are compared.
    """
    kept = KAFKAS.kept(schema.names)
    prints = [None] * len(plans) if taken is None else [fingerprint(table(one, schema), kept) for one in taken]
    cases = [replace(case_of(one, schema), fingerprint=own, **requests) for one, own in zip(plans, prints, strict=True)]
    return judge(cases, schema, KAFKAS, samples=samples)


def said(verdict: Verdict) -> str:
    """The broken promises in short: ``newest_record_kept@1,4 counts``, or ``kept``."""
    broken = verdict.failures
    offsets = [sorted({one.offset for one in row.samples if one.offset is not None}) for row in broken]
    names = [row.name.removeprefix("expect_").replace("record_counts_to_add_up", "counts") for row in broken]
    return " ".join(f"{n}@{','.join(map(str, o))}" if o else n for n, o in zip(names, offsets, strict=True)) or "kept"


def verdicts_on(plans: Sequence[Planned], reports: Path, samples: Shown = "full") -> list[Verdict]:
    """Great Expectations' verdicts on ``plans``, judged together, by values."""
    return list(verdicts(judged_on(plans, samples=samples), reports, job="job").values())


def replaced(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Callable[..., Any]) -> None:
    """Have ``broken`` called in place of a function of a module or class; its first argument is that function."""
    sound = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: broken(sound, *args, **kwargs))
