"""Make a changelog out of a git repository's history: what the demo lands, and what it must end up with.

Every path is a key, every change of it a record, every deletion a tombstone. The order is that of the
first-parent history, oldest commit first; the time is when the author says the change was written, so it
runs backwards where a change lay around before it was merged. Kept are paths, file modes, blob ids and
times: no contents, no names.

    python -m infra.demo.changelog /path/to/clone.git

writes `changelog.xz` and `tree.xz` next to this module, after checking that replaying the one gives the
other.
"""

import json
import lzma
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CHANGELOG = HERE / "changelog.xz"
TREE = HERE / "tree.xz"


class Entry(NamedTuple):
    """An entry of a tree: file mode (octal, as git prints it) and blob id (hex)."""

    mode: str
    blob: str

    def value(self) -> bytes:
        """The record value: compact JSON, the same bytes for the same entry."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes) -> "Entry":
        """The entry behind a record value."""
        return cls(**json.loads(value))


class Change(NamedTuple):
    """One path of one commit: author time in epoch seconds, the path, and its entry (None: deleted)."""

    time: int
    path: str
    entry: Entry | None


def git(repository: Path, *arguments: str) -> list[str]:
    """Run git and split its NUL-separated output. Paths that are not UTF-8 survive the round trip."""
    # Settings of the user's that would change the output of `git log` are overruled.
    command = ["git", "-c", "log.showRoot=true", "-c", "log.showSignature=false", "-C", str(repository)]
    done = subprocess.run([*command, *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"git {arguments[0]} in {repository}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")


def read_history(repository: Path, revision: str = "HEAD") -> Iterator[Change]:
    """All changes of the first-parent history, oldest first, in path order within a commit.

    A merge counts as the one change that it made to its first parent. Renames are a deletion and an addition.
    """
    tokens = iter(
        git(
            repository,
            "log",
            "--first-parent",
            "--diff-merges=first-parent",
            "--reverse",
            "--raw",
            "--no-renames",
            "--no-abbrev",
            "-z",
            "--format=%at",
            revision,
        )
    )
    time = 0
    for token in tokens:
        fact = token.strip()
        if fact.startswith(":"):
            _, mode, _, blob, status = fact.split(" ")
            yield Change(time, next(tokens), None if status == "D" else Entry(mode, blob))
        elif fact:
            time = int(fact)


def read_tree(repository: Path, revision: str = "HEAD") -> dict[str, Entry]:
    """The entries of the revision's tree, by path."""
    tree = {}
    for line in git(repository, "ls-tree", "-r", "-z", revision):
        if line:
            facts, path = line.split("\t", 1)
            mode, _, blob = facts.split(" ")
            tree[path] = Entry(mode, blob)
    return tree


def replay(changes: Iterable[Change]) -> dict[str, Entry]:
    """The newest entry per path, deleted paths left out: what a compacted changelog says."""
    newest = {change.path: change.entry for change in changes}
    return {path: entry for path, entry in newest.items() if entry is not None}


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write xz-compressed lines; the same lines always give the same bytes."""
    text = []
    for line in lines:
        if "\n" in line:
            raise SystemExit(f"a path with a line feed in it has no place in {path.name}: {line!r}")
        text.append(line + "\n")
    path.write_bytes(lzma.compress("".join(text).encode("utf-8", "surrogateescape"), preset=9 | lzma.PRESET_EXTREME))


def read_lines(path: Path) -> list[str]:
    """The lines that `write_lines` wrote."""
    return lzma.decompress(path.read_bytes()).decode("utf-8", "surrogateescape").split("\n")[:-1]


def write_changelog(path: Path, changes: Iterable[Change]) -> None:
    """Write `time mode blob path` lines; a deletion has `-` for mode and blob."""
    write_lines(path, (f"{c.time} {' '.join(c.entry or ('-', '-'))} {c.path}" for c in changes))


def read_changelog(path: Path = CHANGELOG) -> Iterator[Change]:
    """The changes in a file that `write_changelog` wrote."""
    for line in read_lines(path):
        time, mode, blob, name = line.split(" ", 3)
        yield Change(int(time), name, None if blob == "-" else Entry(mode, blob))


def write_tree(path: Path, tree: dict[str, Entry]) -> None:
    """Write `mode blob path` lines, sorted by path."""
    write_lines(path, (f"{entry.mode} {entry.blob} {name}" for name, entry in sorted(tree.items())))


def read_tree_list(path: Path = TREE) -> dict[str, Entry]:
    """The entries in a file that `write_tree` wrote, by path."""
    rows = (line.split(" ", 2) for line in read_lines(path))
    return {name: Entry(mode, blob) for mode, blob, name in rows}


def main() -> None:
    """Entry point: make both files from the clone named on the command line."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m infra.demo.changelog GIT_DIR")
    repository = Path(sys.argv[1])
    changes = list(read_history(repository))
    tree = read_tree(repository)
    if replay(changes) != tree:
        raise SystemExit("replaying the changelog does not give the tree: is the clone a shallow one?")
    write_changelog(CHANGELOG, changes)
    write_tree(TREE, tree)
    deletions = sum(change.entry is None for change in changes)
    backwards = sum(later.time < sooner.time for sooner, later in pairwise(changes))
    paths = {change.path for change in changes}
    print(f"commit {git(repository, 'rev-parse', 'HEAD')[0].strip()}")
    print(f"{len(changes):,} changes, {deletions:,} of them deletions; time runs backwards {backwards} times")
    print(f"{len(paths):,} paths, {len(tree):,} of them in the final tree")
    for file in (CHANGELOG, TREE):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
