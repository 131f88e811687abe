"""Subcommand ``spark``: prepare what Spark's executors need."""

import json
from pathlib import Path
from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.engine.pack import pack as write_archive
from firnlake_expectations.wording import count

spark = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@spark.callback()
def prepare() -> None:
    """Prepare what Spark's executors need."""


@spark.command()
def pack(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The archive to write, as NAME.zip.", show_default=False)
    ],
    more: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE", help="Add this installed package, for example s3fs. Repeatable."),
    ] = None,
) -> None:
    """Pack Firn and the packages that its tasks import into an archive, and print the Spark settings that use it."""
    archive = write_archive(path, more or [])
    names = ", ".join(f"{name} {version}" for name, version in archive.packages.items())
    settings = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in archive.settings.items())
    show.line(f"{archive.path}: {archive.bytes:,} bytes, {count(len(archive.packages), 'package')}: {names}")
    show.line("Line for firn.toml; replace the path by the address from which executors can read the archive:")
    show.line(f"spark = {{ {settings} }}")
