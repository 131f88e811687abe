"""The plan files of runs: written by one task, read by the next ones, kept a while for who tries again."""

from pathlib import Path


def forget_plans_before(folder: Path, before_ms: int) -> list[Path]:
    """Delete the plan files in ``folder`` that were written before ``before_ms`` (epoch milliseconds); which."""
    old = [path for path in folder.glob("*.json") if path.stat().st_mtime * 1000 < before_ms]
    for path in old:
        path.unlink(missing_ok=True)
    return old
