"""Everything that a user can touch, taken from the code, a line each; `touchable.txt` beside this file holds it. Only a
table's properties are elsewhere: docs/settings.md is made of them.

    python -m tests.nets.touchable            rewrite the file; whoever changes a line does so on purpose

A test compares both, so that nothing disappears, or appears, unnoticed while the code is rebuilt.
"""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from firnlake import errors
from firnlake.airflow.configuration import Notifier, Settings
from firnlake.cli.main import app
from firnlake.table.history import FENCE, MENDED_FILES, CommitSummary, Counts
from tests.nets.layout import ROOT, modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

LIST = Path(__file__).with_suffix(".txt")
FORM = ROOT / "pipeline/firnlake/airflow/params.py"
"""The module with the params of a run: a dict that function `params` returns."""
METRICS = ROOT / "pipeline/firnlake/airflow/figures.py"
"""The module with the metrics: dicts by name in function `metrics`."""
_VARIABLE = re.compile(r"FIRN_[A-Z_]*[A-Z]")
_HEADING = re.compile(r"<h([1-6])[^>]*>(.*?)</h\1>", re.DOTALL)
_EXPRESSION = re.compile(r"{{.*?}}", re.DOTALL)
_NOT_WORDS = re.compile(r"{%.*?%}|<[^>]*>", re.DOTALL)


def lines() -> list[str]:
    """The list, sorted within each kind."""
    kinds = (
        ("command", commands(typer.main.get_command(app), "firn")),
        ("firn.toml", chain(keys(Settings), (f"notify.{key}" for key in keys(Notifier)))),
        ("param of a run", names_in(FORM, "params")),
        ("environment variable", environment_variables()),
        ("metric", names_in(METRICS, "metrics")),
        ("page section", page_sections()),
        ("summary key", summary_keys()),
        ("exit code", exit_codes()),
    )
    return [f"{kind}: {line}" for kind, found in kinds for line in sorted(set(found))]


def commands(command: Any, path: str) -> Iterator[str]:
    """A command's line and those of its arguments and options, then those of its subcommands.

    `command` is one of click's, whose types typer keeps to itself.
    """
    yield path
    for parameter in command.params:
        default = "" if parameter.required or parameter.default in (None, (), []) else f" = {parameter.default}"
        yield f"{path} {'/'.join((*parameter.opts, *parameter.secondary_opts))}{default}"
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            # As when it is called: a listed subcommand is a stand-in without options.
            _, subcommand, _ = command.resolve_command(context, [name, "--help"])
            yield from commands(subcommand, f"{path} {name}")


def keys(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a section of firn.toml, with their defaults."""
    for name, field in model.model_fields.items():
        yield (field.alias or name) + ("" if field.is_required() else f" = {field.default}")


def names_in(path: Path, function: str) -> Iterator[str]:
    """The string keys of the outermost dicts in a function, for modules that only Airflow can import."""
    waiting: list[ast.AST] = [
        node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Dict):
            yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))
        else:
            waiting.extend(ast.iter_child_nodes(node))


def environment_variables() -> Iterator[str]:
    """The variables that product and local set-up read."""
    for module in modules("pipeline", "expectations", "dags", "infra"):
        for node in module.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
                yield node.value


def page_sections() -> Iterator[str]:
    """The headings of the pages, by template."""
    for template in chain.from_iterable((ROOT / folder).rglob("*.html.j2") for folder in ("pipeline", "expectations")):
        for _, heading in _HEADING.findall(template.read_text(encoding="utf-8")):
            words = _NOT_WORDS.sub("", _EXPRESSION.sub("…", heading)).split()
            yield f"{template.name.partition('.')[0]}: {' '.join(words)}"


def summary_keys() -> Iterator[str]:
    """What Firn writes into the summary of a snapshot."""
    yield from (FENCE, MENDED_FILES)
    fields = CommitSummary.model_fields.items()
    yield from (str(field.alias) for name, field in fields if name not in ("counts", "at_ms"))
    yield from Counts.total([]).summary()


def exit_codes() -> Iterator[str]:
    """The exit codes of the command, by kind of error."""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.FirnError):
            yield f"{value.exit_code} {name}"


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
