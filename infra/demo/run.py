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
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from pyiceberg.table import Table
from rich.console import Console

from firnlake import clock
from firnlake.cli.overview import status as show_status
from firnlake.door import MaintainedTable, OpenCatalog
from firnlake.engine.engine import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import files_in, store
from firnlake.inspect.status import write_snapshot
from firnlake.lanes import Lane
from firnlake_expectations.wording import count
from infra.airflow import local
from infra.demo.changelog import DAG_ID, LEVELED, TABLE, Entry, load, read_changelog, read_tree, topic_of
from infra.processes import serving

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


def differences(table: Table, tree: Mapping[str, Entry]) -> list[str]:
    """Differences between the table's newest records and the tree; empty when they are the same.

    Also a difference: two records of one key in a topic partition, as a compacted table has one.
    """
    columns = ("topic", "partition", "key", "value")
    records = table.scan(selected_fields=columns).to_arrow().select(columns).to_pylist()
    keys = Counter((row["topic"], row["partition"], row["key"]) for row in records)
    wrong = [f"{key!r} is in {topic}-{part} {n} times" for (topic, part, key), n in keys.items() if n > 1]
    held = {
        row["key"].decode("utf-8", "surrogateescape"): Entry.parse(row["value"])
        for row in records
        if row["value"] is not None
    }
    return wrong + [
        f"{path} is {held.get(path, 'nothing')} in the table, {tree.get(path, 'nothing')} in the tree"
        for path in sorted(held.keys() | tree.keys())
        if held.get(path) != tree.get(path)
    ]


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


def erase_path(table: MaintainedTable, path: str) -> str:
    """Request that no file holds ``path`` any more, and take it from the current state of the table; the request."""
    asked = table.erase(path.encode("utf-8", "surrogateescape"), topic=topic_of(path))
    # A demo does not wait for other requests, with which a scheduled run would serve this one.
    lanes = table.run(Lane.ERASE, force=True)
    for failure in (one for lane in lanes for one in lane.failures.values()):
        raise SystemExit(f"firn: {path} could not be erased: {failure}")
    done = [one.counts for lane in lanes for one in lane.publications if one.counts]
    write_snapshot(table.opened.lake, TABLE, clock.now_ms())  # as `firn run` does: pages know what published what
    records, rewritten = sum(one.erased for one in done), sum(one.segments_in for one in done)
    console.print(
        f"request {asked.id}, to erase {path}: removed {count(records, 'record')} of the key from "
        f"{count(rewritten, 'segment')}, but not yet from older snapshots",
        soft_wrap=True,
    )
    return asked.id


def free_history(table: MaintainedTable) -> None:
    """Let maintenance expire all snapshots but the newest, and show the bytes on disk before and after it."""
    lake = table.opened.lake
    # A demo does not wait the five days that Iceberg keeps snapshots for.
    lake.set_properties(TABLE, {"history.expire.max-snapshot-age-ms": "0"})
    before = on_disk(lake.table(TABLE))
    for garbage in table.maintain():
        if garbage.goes:
            console.print(f"  {garbage}", markup=False, soft_wrap=True)
    console.print(f"on disk: {before} before maintenance; {on_disk(lake.table(TABLE))} after it")


def on_disk(table: Table) -> str:
    """Files and bytes below the table's location now: data, metadata, history."""
    files = files_in(*store(table, table.location()))
    return f"{len(files):,} files, {sum(file.bytes for file in files):,} bytes"


def show_certificate(table: MaintainedTable, request: str) -> bool:
    """Tell where the certificate of the request is; returns whether it has one."""
    certified = table.certify(request)
    for problem in certified.blocked.get(request, ()):
        console.print(f"  {problem}", style="red", markup=False)
    for page in certified.pages.values():
        shown = Path(os.path.relpath(page))
        console.print(
            f"[bold green]no file holds a record of request {request} any more[/]: certificate {shown}", soft_wrap=True
        )
    return bool(certified.issued)


def main() -> int:
    """Entry point."""
    started = time.monotonic()
    home = Path(sys.argv[1] if len(sys.argv) > 1 else ".firn/demo").resolve()
    fresh(home)
    environment = local.environment(home)
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
        show_status(TABLE)
        console.rule("Airflow runs the DAG")
        run_dag(airflow)
        code = finish(lake, home, log, airflow)
    console.print(f"{time.monotonic() - started:.0f} s in all")
    return code


def finish(lake: Lake, home: Path, log: Path, airflow: "subprocess.Popen[str]") -> int:
    """Erase a key, free the history, compare the table with the tree; returns the exit code."""
    table = OpenCatalog(lake, engine=LocalEngine()).table(TABLE)
    console.rule("what is in the table now")
    show_status(TABLE)
    tree = read_tree()
    console.rule("a key is erased, maintenance frees what only history holds")
    request = erase_path(table, next(one.path for one in read_changelog() if one.path not in tree))
    free_history(table)
    certified = show_certificate(table, request)
    wrong = differences(lake.table(TABLE), tree)
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
