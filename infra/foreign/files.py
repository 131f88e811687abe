"""The files of a table, as another program finds them on this machine's disk."""

from pathlib import Path


def on_disk(uri: str) -> Path:
    """The file or folder that a ``file:`` location means: PyIceberg takes what follows the scheme as it is."""
    return Path("/" + uri.removeprefix("file:").lstrip("/"))


def files_under(folder: Path) -> set[Path]:
    """Every file below ``folder``."""
    return {path for path in folder.rglob("*") if path.is_file()} if folder.exists() else set()
