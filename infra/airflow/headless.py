"""Run one DAG in this process, without scheduler or server: what `airflow dags test` does, told as it goes.

    python -m infra.airflow.headless DAG_ID LOG_FILE [TASK_ID]

A task that is named is not run, and counts as a success, as if somebody had marked it so.
Reads the params of each run from standard input, one JSON document a line; a run that fails is the last. Prints a JSON
line as a run starts, as a task starts and as it ends; Airflow's own output goes to the log file. Exit code 0 when all
runs succeeded. The environment is that of `infra.airflow.local`. The metadata database must be there before the first
line: Airflow is imported and the DAG is parsed meanwhile.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO

from airflow.dag_processing.dagbag import DagBag
from airflow.listeners import hookimpl
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.listener import get_listener_manager
from airflow.utils.state import DagRunState


class Narrator:
    """Listens as Airflow's plugins do, and prints which task starts and how each one ends."""

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.started = 0.0  # tasks of `dag.test` run one after the other

    def say(self, task: RuntimeTaskInstance, state: str, **facts: object) -> None:
        """Print one JSON line."""
        print(json.dumps({"task": task.task_id, "state": state, **facts}), file=self.out, flush=True)

    def ended(self, task: RuntimeTaskInstance, state: str, **facts: object) -> None:
        """Print how a task ended and the seconds that it took."""
        self.say(task, state, seconds=time.monotonic() - self.started, **facts)

    @hookimpl
    def on_task_instance_running(self, task_instance: RuntimeTaskInstance) -> None:
        """A task starts."""
        self.started = time.monotonic()
        self.say(task_instance, "running")

    @hookimpl
    def on_task_instance_success(self, task_instance: RuntimeTaskInstance) -> None:
        """A task succeeded."""
        self.ended(task_instance, "success")

    @hookimpl
    def on_task_instance_skipped(self, task_instance: RuntimeTaskInstance) -> None:
        """A task had nothing to do."""
        self.ended(task_instance, "skipped")

    @hookimpl
    def on_task_instance_failed(self, task_instance: RuntimeTaskInstance, error: str | BaseException | None) -> None:
        """A task failed."""
        self.ended(task_instance, "failed", error=str(error))


def main() -> int:
    """Entry point."""
    dag_id, log, marked = sys.argv[1], Path(sys.argv[2]), next(iter(sys.argv[3:]), None)
    # Closed before Airflow has ended, which takes seconds: who reads the narration need not wait.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as narration:
        with log.open("a") as file:  # also what child processes print
            os.dup2(file.fileno(), sys.stdout.fileno())
            os.dup2(file.fileno(), sys.stderr.fileno())
        return run(dag_id, narration, marked)


def run(dag_id: str, narration: TextIO, marked: str | None) -> int:
    """Run the DAG once per line of standard input, without the task ``marked``; returns the exit code."""
    dags = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    if dag_id not in dags.dags:
        print(json.dumps({"error": f"no DAG {dag_id}; found {list(dags.dags)} {dags.import_errors}"}), file=narration)
        return 1
    get_listener_manager().add_listener(Narrator(narration))  # type: ignore[no-untyped-call]  # Airflow has no types there
    for line in sys.stdin:
        params = json.loads(line)
        print(json.dumps({"run": params}), file=narration, flush=True)
        if dags.dags[dag_id].test(run_conf=params, mark_success_pattern=marked).state != DagRunState.SUCCESS:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
