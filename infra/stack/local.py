"""`make stack-up` and `make stack-down`: PostgreSQL, an S3 server, a REST catalog and a Spark cluster on this machine.

    python -m infra.stack.local up|down

Everything lies under $FIRN_HOME/stack (default .firn/stack) and is still there after the next start.
"""

import os
import sys
from pathlib import Path

from rich.console import Console

from infra.stack.stack import Stack

console = Console(highlight=False, soft_wrap=True)


def up(stack: Stack) -> None:
    """Start the stack unless it runs already, and say how to use it."""
    if not stack.is_up:
        with console.status("the stack starts"):
            stack.up()
    settings = stack.settings
    shown = os.path.relpath(stack.write_environment())
    console.print(f"Spark: {settings.master}, UI http://127.0.0.1:{settings.master_ui_port}")
    console.print(f"object store: {settings.s3_endpoint}; logs: {os.path.relpath(stack.folder)}/*.log")
    console.print(f"`. {shown}` once in a shell, then `firn create shop.orders` works on the SQL catalog;")
    console.print("`export PYICEBERG_DEFAULT_CATALOG=rest` turns to the REST catalog.")
    console.print("`make stack-down` stops everything.")


def main() -> None:
    """Entry point."""
    stack = Stack.of(Path(os.environ.get("FIRN_HOME", ".firn")).resolve() / "stack")
    match sys.argv[1:]:
        case ["up"]:
            up(stack)
        case ["down"]:
            stopped = stack.down()
            console.print(f"the stack is stopped, {stopped} processes" if stopped else "the stack is not running")
        case _:
            raise SystemExit("usage: python -m infra.stack.local up|down")


if __name__ == "__main__":
    main()
