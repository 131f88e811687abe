"""The ``firn`` command: one subcommand per room."""

from pipeline.cli.main import main

__all__ = ["main"]
