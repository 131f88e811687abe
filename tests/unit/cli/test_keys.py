"""Keys are written the same for every command: as text, hex or base64, the values of a composite key with commas."""

from pathlib import Path

import pytest

from firnlake.cli.keys import keys_in, parse_key
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from tests.support.adopted import EVENTS, EVENTS_SCHEMA, append, event, make
from tests.support.in_process import Firn, refused
from tests.support.lakes import NOW

BOTH = ("tenant", "id")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("k", b"k"), ("", b""), ("größe", "größe".encode()), ("a:b", b"a:b"), ("hex:00ff", b"\x00\xff"), ("hex:", b""),
        ("base64:AP8=", b"\x00\xff"), ("text:hex:00", b"hex:00"), ("null:", None), ("null", b"null"),
        ("null:x", b"null:x"), ("text:null:", b"null:"), ("a,b", b"a,b"), ('"a"', b'"a"'),
    ],
)  # fmt: skip
def test_a_key_of_one_column_is_taken_as_it_is(text: str, key: bytes | None) -> None:
    assert parse_key(text, ["key"]) == (None if key is None else (key,))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("acme,1", (b"acme", b"1")),
        ('"a,b",1', (b"a,b", b"1")),
        ('"say ""hi""",1', (b'say "hi"', b"1")),
        ("hex:2c,text:hex:1", (b",", b"hex:1")),
        (",", (b"", b"")),
        ('"two\nlines",1', (b"two\nlines", b"1")),
        ("null:", None),
    ],
)
def test_commas_separate_the_values_of_a_composite_key(text: str, key: tuple[bytes, ...] | None) -> None:
    assert parse_key(text, BOTH) == key


@pytest.mark.parametrize("text", ["hex:0", "hex:xy", "base64:A", "base64:$$$$"])
def test_c26_a_key_that_is_not_what_it_says_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"key '.*' is not (hex|base64): .*; allowed: text, "):
        parse_key(text, ["key"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("acme", "has 1 value; allowed: 2, written as <tenant>,<id>"),
        ("a,b,1", "has 3 values"),
        ("", "has 0 values"),
    ],
)
def test_c26_a_wrong_number_of_values_says_how_the_key_is_written(text: str, found: str) -> None:
    with pytest.raises(RefusedError, match=f"key '{text}' {found}"):
        parse_key(text, BOTH)


@pytest.mark.parametrize("text", ['"a,1', "a\rb,1", '"a"b,1'])
def test_c26_wrong_quotes_are_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"can't be split at its commas: .*; allowed: values as in CSV"):
        parse_key(text, BOTH)


def test_a_file_has_a_key_per_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text('acme,1\n"a,b",2\n')
    assert list(keys_in(path, BOTH)) == [(b"acme", b"1"), (b"a,b", b"2")]
    path.write_text("acme,1\nacme\n")
    with pytest.raises(RefusedError, match="keys, line 2: key 'acme' has 1 value; allowed: 2"):
        list(keys_in(path, BOTH))


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"\xef\xbb\xbfa\nb\n", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f\rg\n".encode(), ["a\x0bb\x0cc\x1cd\x85e\u2028f\rg".encode()]),
        (b"a b\ntext:\nhex:20", [b"a b", b"", b" "]),
    ],
    ids=["byte order mark", "lines of Windows", "other ends of lines", "blanks within, none, and one"],
)
def test_e1_only_n_and_r_n_end_a_line_of_a_file(tmp_path: Path, content: bytes, keys: list[bytes]) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    assert list(keys_in(path, ["key"])) == [(key,) for key in keys]


@pytest.mark.parametrize("line", ["b ", " b", "b\t", "\u00a0b", "b\r", "hex:00 "])
def test_e1_blanks_at_the_ends_of_a_line_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(f"a\n{line}\r\n".encode())
    with pytest.raises(RefusedError, match="line 2 begins or ends with blanks"):
        list(keys_in(path, ["key"]))


@pytest.fixture
def events(lake: Lake, firn: Firn) -> str:
    """An adopted table with a composite key."""
    make(lake, EVENTS, EVENTS_SCHEMA)
    append(lake, EVENTS, *(event(seq, source="a,b", entity="1") for seq in range(2)))
    ran = firn("adopt", EVENTS, "--key", "source,entity", "--offset", "seq", "--tombstone", "body IS NULL")
    assert ran.code == 0, ran
    return EVENTS


def test_explain_and_erase_take_the_same_key(firn: Firn, events: str) -> None:
    out = firn("explain", events, "--key", '"a,b",1', "--now", NOW).out
    assert "events-0 offset 1, level 0, in " in out
    assert ": 1 key in events-0 below offset 2" in firn("erase", events, "--key", '"a,b",1').out
    assert "it holds 2 records of keys to erase" in firn("erase", events, "--certify").out


def test_c26_a_key_by_parts_is_refused_with_the_right_call(firn: Firn, events: str) -> None:
    for command in ("explain", "erase"):
        refused(firn(command, events, "--key", "1"), "allowed: 2, written as <source>,<entity>")
    refused(firn("erase", events, "--key", "a", "--key", "1"), "key 'a' has 1 value; allowed: 2, written as <source>,")
