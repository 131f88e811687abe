"""The content of files to be landed, written in a line."""

from __future__ import annotations

import re
from typing import Final

HEADING: Final = "topic,partition,offset,timestamp,key,value"
"""Of a CSV file."""
_BAR: Final = re.compile(r"(?:^|(?<= ))\|(?: |$)")
_WORD: Final = re.compile(r" (?=\w+=|-[A-Za-z]+(?: |$))")
_RECORD: Final = {
    "key": '"k"',
    "value": '"v"',
    "topic": '"orders"',
    "partition": "0",
    "offset": "1",
    "timestamp": "1",
}


def json_lines(text: str) -> bytes:
    """A line for each part of ``text`` between ` | `: a record, with ``name=<JSON>`` in place of a field or besides,
    and without the field of ``-name``. Other parts are lines as they are.
    """
    return "".join(f"{_json_line(part.strip())}\n" for part in _BAR.split(text)).encode()


def csv_lines(text: str) -> bytes:
    """HEADING, and beneath it the lines of ``text``, parted by ` | `."""
    return unescaped("".join(f"{line}\\n" for line in [HEADING, *text.split(" | ")]))


def unescaped(text: str) -> bytes:
    r"""The bytes of a text in which ``\xff``, ``\n`` and the like are as in a literal of Python."""
    return re.sub(
        rb"\\(x[0-9a-f]{2}|.)",
        lambda match: _ESCAPES.get(match[1]) or bytes.fromhex(match[1][1:].decode()),
        text.encode(),
    )


_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"0": b"\0"}


def _json_line(part: str) -> str:
    fields = dict(_RECORD)
    words = _WORD.split(part) if part else []
    if not all(_WORD.match(f" {word}") for word in words):
        return part
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            fields[name] = value
        else:
            del fields[name.removeprefix("-")]
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
