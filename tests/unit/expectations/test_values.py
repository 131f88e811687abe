"""Claims, verdicts and wording of expectations/, and its light import, without a JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from firnlake_expectations.claim import MAX_VERDICT_BYTES, Claim, Finding, Sample, Verdict
from firnlake_expectations.promises.table import PROMISES
from firnlake_expectations.wording import (
    KEY_BYTES,
    KEY_CHARACTERS,
    Shown,
    count,
    digest,
    key_text,
    log_name,
    moment,
    plain,
    shown_key,
    size,
)
from infra.environment import SOURCES

if TYPE_CHECKING:
    from firnlake_expectations.promises.promise import Rule

CLAIM = Claim(
    table="db.orders",
    lane="clean",
    plan_id="p1",
    topic="orders",
    partition=3,
    now_ms=1,
    level_out=2,
    clean_below=None,
    log_end_offset=9,
    delete_retention_ms=1,
    segments_in=2,
    segments_out=1,
    bytes_in=20,
    bytes_out=10,
    records_in=10,
    records_out=7,
    superseded=2,
    tombstones_removed=1,
    quarantined=0,
)

NO = False
"""Not passed."""


def test_importing_the_package_and_its_values_starts_nothing_heavy() -> None:
    code = (
        "import sys, firnlake_expectations.claim; heavy = ('pyspark', 'duckdb', "
        "'great_expectations', 'pyarrow', 'firnlake'); sys.exit(any(name in sys.modules for name in heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": SOURCES}).returncode == 0


def test_a_claim_survives_json() -> None:
    for claim in (CLAIM, replace(CLAIM, transactional=True, markers=((1, 2, True),))):
        assert Claim.from_dict(json.loads(json.dumps(claim.to_dict()))) == claim


def test_a_verdict_survives_json() -> None:
    verdict = Verdict("p1", NO, (Finding("n", "s", NO, "o", (Sample(3, None, "f", "e"),)),), 0.5, "run", "job")
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    assert [finding.name for finding in verdict.failures] == ["n"]


@pytest.mark.parametrize("key", ["k", "\U0001f600" * KEY_CHARACTERS])
def test_a_bounded_verdict_fits_a_table_property(key: str) -> None:
    samples = tuple(Sample(offset, key, "f" * 40, "e" * 40) for offset in range(20))
    findings = tuple(Finding(f"n{i}", "s" * 200, NO, "o" * 200, samples) for i in range(12))
    bounded = Verdict("p1", NO, findings, 0.5, "run", "job").bounded()
    assert len(json.dumps(bounded.to_dict())) < MAX_VERDICT_BYTES
    assert [finding.name for finding in bounded.failures] == [finding.name for finding in findings]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (None, None),
        (b"", "(empty)"),
        (b"user-1", "user-1"),
        ("søster".encode(), "søster"),
        (b"\x00\xff", "0x00ff"),
        (b"a\nb", "0x610a62"),
        (b"x" * 200, "x" * (KEY_CHARACTERS - 1) + "…"),
        (7, "7"),
    ],
)
def test_keys_are_shown_as_text_where_printable_else_in_hex(key: object, text: str | None) -> None:
    assert key_text(key) == text


def test_a_key_cut_within_a_character_is_still_text() -> None:
    cut = ("x" + "\U0001f600" * 200).encode()[:KEY_BYTES]
    assert key_text(cut) == "x" + "\U0001f600" * (KEY_CHARACTERS - 2) + "…"


def test_names_cannot_carry_markup_or_templates() -> None:
    assert plain("<b>$x\"'&") == "%3Cb%3E%24x%22%27%26"
    assert log_name("orders", 3) == "orders-3"


def test_numbers_sizes_and_times_in_words() -> None:
    assert (count(1, "key"), count(10_061, "key")) == ("1 key", "10,061 keys")
    assert (size(812), size(12_340_000), size(5 * 10**15)) == ("812 B", "12.3 MB", "5,000.0 TB")
    assert moment(1_795_239_416_123) == "2026-11-21 05:36:56.123 UTC"
    assert moment(253_402_300_800_000) == "253402300800000 ms after 1970-01-01 UTC"  # year 10000


RULES: dict[str, Rule] = {rule.name: rule for promise in PROMISES for rule in promise.rules}


def test_broken_rules_are_said_in_words() -> None:
    assert RULES["repeated_key"].say(1) == "1 key has more than one record"
    assert RULES["tombstone_lost"].say(1_200) == "1,200 tombstones were removed too early"
    assert RULES["null_lost"].say(2) == "2 records without a key are lost or changed"
    assert RULES["left_due"].say(2) == ("2 tombstones are in segments left in place but had to be stamped or removed")


@pytest.mark.parametrize(
    ("key", "uuids", "shown", "text"),
    [
        (b"\x01" * 16, (True,), "full", "01010101-0101-0101-0101-010101010101"),
        (b"k", (False,), "keys", digest([b"k"])),
        ({"k0": b"a", "k1": 7}, (False, False), "keys", digest([b"a", b"7"])),
        ({"k0": b"a", "k1": 7}, (False, False), "full", "{a, 7}"),
        (True, (False,), "keys", digest([b"true"])),
        (datetime(2026, 1, 2, tzinfo=UTC), (False,), "keys", digest([b"2026-01-02T00:00:00.000000"])),
        (None, (False,), "full", None),
    ],
)
def test_keys_of_all_types_are_shown_or_digested(
    key: object, uuids: tuple[bool, ...], shown: Shown, text: str | None
) -> None:
    assert shown_key(key, shown, uuids) == text


def test_a_key_of_several_columns_has_one_digest() -> None:
    assert digest([b"a", b"bc"]) != digest([b"ab", b"c"])
    assert digest([b"a"]) == "sha256:ca978112ca1bbdca"
