"""Defects in the cleaner, and the judge who has to notice them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from firnlake.job.plan import Plan
from firnlake.validate.validate import Judged, validate
from tests.support.topics import Topic


def replaced(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Callable[..., Any]) -> None:
    """Have ``broken`` called in place of a function of a module or class; its first argument is that function."""
    sound = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: broken(sound, *args, **kwargs))


def refused(topic: Topic, plans: Sequence[Plan]) -> Judged:
    """Compact the one plan, and have the judge refuse what it gives."""
    (outcome,) = topic.compacted(*plans)
    (judged,) = validate(topic.lake, [outcome.stage], topic.engine)
    assert judged.error is None
    assert judged.verdict is not None
    assert not judged.passed
    return judged
