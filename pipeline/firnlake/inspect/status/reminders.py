"""Remembers which topic partitions people know to wait for them: each is told once, and once more every day.

A refused plan is tried again once a day as well, so its topic partition is not told twice. The file lies beside the
stored status. If it is lost, people are told once more.
"""

import json
from collections.abc import Collection, Mapping
from typing import Final

from pydantic import TypeAdapter, ValidationError

from firnlake.inspect.status.rows import Status
from firnlake.job.failures import AGAIN_MS
from firnlake_expectations.templates import write_page

_TOLD: Final = TypeAdapter(dict[str, int])


def news(status: Status, now_ms: int, told: Collection[str] = ()) -> Mapping[str, str]:
    """The reasons of the topic partitions of ``status`` that wait for a person, by name, if they were not told within
    the day before ``now_ms`` (epoch milliseconds). From now on, they count as told, and so do those in ``told``.

    A topic partition that waits for another kind of reason is told at once.
    """
    path = status.path.with_suffix(".told.json")
    try:
        before = _TOLD.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        before = {}
    held = {f"{name} {condition}": (name, reason) for (name, condition), reason in status.held().items()}
    known = {cause: at for cause, at in before.items() if cause in held and abs(now_ms - at) < AGAIN_MS}
    fresh = {name: reason for cause, (name, reason) in held.items() if cause not in known and name not in told}
    write_page(path, json.dumps(known | dict.fromkeys(held.keys() - known.keys(), now_ms)))
    return fresh
