"""`make demo`: a changelog that really happened is landed, compacted by the Airflow DAG, and compared with git.

    python -m infra.demo.run [HOME]

HOME (default .firn/demo) is emptied first if it is a demo's. Exit code 1 when the run failed or anything differs.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as Printed

from firnlake import clock
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import files_in, store
from firnlake.inspect.gather import write_snapshot
from firnlake.lanes import Lane
from firnlake.lanes.erasure.certificate import export, obstacles
from firnlake.lanes.erasure.requests import ask, erasures_of
from firnlake.maintain.maintain import maintain_table
from firnlake.run import run
from firnlake_expectations.wording import count
from infra.airflow import settings
from infra.demo import changelog, segments
from infra.demo.check import LevelCount, count_levels, differences
from infra.demo.load import DAG_ID, LEVELED, TABLE, load
from infra.spark_server import serving

MARK = ".firn-demo"
LAST_LINES = 20  # of what a failed task says; all of it is in the log

console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


def fresh(home: Path) -> None:
    """An empty home; only what an earlier demo has made is removed."""
    if home.exists():
        if not (home / MARK).exists():
            raise SystemExit(f"firn: {home} was not made by the demo; allowed: a folder that does not exist")
        shutil.rmtree(home)
    home.mkdir(parents=True)
    (home / MARK).touch()


def print_levels(title: str, counts: Iterable[LevelCount]) -> None:
    """A row per topic partition and level, and a sum."""
    printed = Printed(title=title, title_justify="left", show_footer=True)
    rows = list(counts)
    for name in ("topic partition", "level"):
        printed.add_column(name, footer="all" if name == "topic partition" else "")
    for name in ("segments", "records", "bytes", "duplicates", "tombstones"):
        total = sum(getattr(row, name) for row in rows)
        printed.add_column(name, justify="right", footer=f"{total:,}")
    for row in rows:
        numbers = (row.segments, row.records, row.bytes, row.duplicates, row.tombstones)
        printed.add_row(f"{row.topic}-{row.partition}", f"L{row.level}", *(f"{number:,}" for number in numbers))
    console.print(printed)


def start(environment: dict[str, str], log: Path, ends: ExitStack) -> "subprocess.Popen[str]":
    """Start a Spark Connect server, which ``ends`` stops, and Airflow, which waits for runs of the DAG."""
    with (
        log.open("w") as output,
        subprocess.Popen(["airflow", "db", "migrate"], env=environment, stdout=output, stderr=output) as migration,
    ):
        address = ends.enter_context(serving(log.parent))
    if migration.returncode != 0:
        raise SystemExit(f"firn: Airflow's database could not be made, see {log}")
    return subprocess.Popen(
        [sys.executable, "-m", "infra.airflow.headless", DAG_ID, str(log)],
        # Without a connection, Firn's tasks use the server that this variable names, and here all the same session.
        env=environment | {"SPARK_REMOTE": f"{address};session_id={uuid.uuid4()}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_dag(airflow: "subprocess.Popen[str]") -> None:
    """Run the DAG twice and tell how each task ended. Airflow's exit code says whether both runs succeeded.

    The second run is the one that a person starts by hand, for lane `full` of one topic, whatever the thresholds.
    """
    runs: list[dict[str, object]] = [{}, {"lane": str(Lane.FULL), "topics": [LEVELED], "force": True}]
    assert airflow.stdin is not None and airflow.stdout is not None  # noqa: PT018  # both are pipes
    with console.status("Airflow starts") as status:
        # An Airflow that has ended says why.
        with suppress(BrokenPipeError), airflow.stdin as stdin:
            stdin.writelines(f"{json.dumps(params)}\n" for params in runs)
        for line in airflow.stdout:
            event = json.loads(line)
            if "run" in event:
                console.print(f"run with {event['run'] or 'the defaults of its form'}", highlight=False, markup=False)
                continue
            if event.get("state") == "running":
                status.update(f"{event['task']} …")
                continue
            if "error" in event:
                lines = event["error"].strip().splitlines()[-LAST_LINES:]
                console.print("\n".join(lines), style="red", markup=False)
            if "task" in event:
                console.print(f"  {event['task']:<24} {event['state']:<8} {event['seconds']:>6.1f} s")


def erase_path(lake: Lake, path: str) -> None:
    """Request that no file holds ``path`` any more, and take it from the current state of the table."""
    key = path.encode("utf-8", "surrogateescape")
    asked = ask(lake, TABLE, [[key]], clock.now_ms(), segments.topic_of(path))
    # A demo does not wait for other requests, with which a scheduled run would serve this one.
    lanes = list(run(lake, TABLE, clock.now_ms(), lambda _: LocalEngine(), [Lane.ERASE], force=True))
    for failure in (one for lane in lanes for one in lane.failures.values()):
        raise SystemExit(f"firn: {path} could not be erased: {failure}")
    done = [one.counts for lane in lanes for one in lane.publications if one.counts]
    write_snapshot(lake, TABLE, clock.now_ms())  # as `firn run` does: pages know which snapshot published what
    records, rewritten = sum(one.erased for one in done), sum(one.segments_in for one in done)
    console.print(
        f"request {asked.id}, to erase {path}: removed {count(records, 'record')} of the key from "
        f"{count(rewritten, 'segment')}, but not yet from older snapshots",
        soft_wrap=True,
    )


def show_certificates(lake: Lake) -> bool:
    """Tell where the certificates are; returns whether every request has one."""
    table = lake.table(TABLE)
    erasures = erasures_of(table)
    for problem in (one for found in obstacles(lake, table, TABLE, erasures).values() for one in found):
        console.print(f"  {problem}", style="red", markup=False)
    for erasure in erasures:
        if certificate := erasure.certificate:
            page = Path(os.path.relpath(export(lake, TABLE, certificate)))
            console.print(
                f"[bold green]no file holds a record of request {certificate['request']} any more[/]: certificate "
                f"{page}",
                soft_wrap=True,
            )
    return all(erasure.certificate for erasure in erasures)


def free_history(lake: Lake) -> None:
    """Let maintenance expire all snapshots but the newest, and show the bytes on disk before and after it."""
    # A demo does not wait the five days that Iceberg keeps snapshots for.
    lake.set_properties(TABLE, {"history.expire.max-snapshot-age-ms": "0"})
    before = on_disk(lake)
    for garbage in maintain_table(lake, TABLE, clock.now_ms(), remove=True):
        if garbage.goes:
            console.print(f"  {garbage}", markup=False, soft_wrap=True)
    after = on_disk(lake)
    console.print(
        f"on disk: {before.files:,} files, {before.bytes:,} bytes before maintenance; "
        f"{after.files:,} files, {after.bytes:,} bytes after it"
    )


class OnDisk(NamedTuple):
    """The files below the table's location: data, metadata, history."""

    files: int
    bytes: int


def on_disk(lake: Lake) -> OnDisk:
    """Files and bytes of the table on disk now."""
    table = lake.table(TABLE)
    files = files_in(*store(table, table.location()))
    return OnDisk(len(files), sum(file.bytes for file in files))


def main() -> int:
    """Entry point."""
    started = time.monotonic()
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ".firn/demo").resolve()
    fresh(home)
    environment = settings.environment(home)
    os.environ.update(environment)
    (home / "airflow").mkdir()
    log = home / "airflow.log"

    console.rule("a changelog lands")
    lake = Lake.load()
    with ExitStack() as ends:
        # Spark and Airflow take half a minute to start: they do while the changelog lands.
        with ThreadPoolExecutor(1) as beside:
            starting = beside.submit(start, environment, log, ends)
            load(lake, home / "landing", console)
            airflow = ends.enter_context(starting.result())
        print_levels("before", count_levels(lake.table(TABLE)))
        console.rule("Airflow runs the DAG")
        run_dag(airflow)
        code = finish(lake, home, log, airflow)
    console.print(f"{time.monotonic() - started:.0f} s in all")
    return code


def finish(lake: Lake, home: Path, log: Path, airflow: "subprocess.Popen[str]") -> int:
    """Erase a key, free the history, compare the table with the tree; returns the exit code."""
    console.rule("what is in the table now")
    table = lake.table(TABLE)
    print_levels("after", count_levels(table))
    tree = changelog.read_tree()
    console.rule("a key is erased, maintenance frees what only history holds")
    erase_path(lake, next(one.path for one in changelog.read_changelog() if one.path not in tree))
    free_history(lake)
    certified = show_certificates(lake)
    table = lake.table(TABLE)
    wrong = differences(table, tree)
    for difference in wrong[:20]:
        console.print(difference, style="red", markup=False)
    shown = Path(os.path.relpath(home))
    if wrong or not certified or airflow.wait() != 0:
        console.print(
            f"[bold red]FAILED[/]: {len(wrong):,} differences from the tree; Airflow's log: {shown / log.name}"
        )
        return 1
    console.print(f"[bold green]the table equals the repository's tree[/]: {len(tree):,} paths, modes and blob ids")
    console.print(f"data-quality report: {shown / 'reports' / 'index.html'}; Airflow's log: {shown / log.name}")
    console.print(f"look around: FIRN_HOME={shown} .venv/bin/firn status {TABLE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
