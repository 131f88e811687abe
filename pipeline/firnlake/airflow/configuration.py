"""The configuration of the tables that Airflow maintains: a TOML file, written by hand.

A section names one table, or has a pattern with ``*`` that stands for all tables of records that match it, as far as
`firn_maintain` found them when it last looked. Airflow parses DAG files every few seconds and in every task, so parsing
reads what was found and never asks the catalog; while the catalog is down, all tables keep their DAGs. The properties
of a table, not this file, decide what is due in the table, and when.
"""

import logging
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from hashlib import sha256
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from firnlake_expectations.data_quality import read_document, write_document

if TYPE_CHECKING:
    from firnlake.iceberg.catalog import Lake

log = logging.getLogger(__name__)

DEFAULT_CONNECTION = "spark_default"

_FOUND: Final = "tables.json"
"""File in Firn's home with the names of the tables of records at the last look."""

LONGEST_ID: Final = 250
"""Maximum number of characters of a DAG id; allowed are letters, digits, ``-``, ``_`` and single dots."""
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9_-]|^_|_(?=_|\Z)|(?<=_)_")
"""Characters that a DAG id can't have, and underscores that could be confused with the two that stand for a dot."""


Minutes: TypeAlias = Annotated[int, Field(ge=1, le=366 * 24 * 60)]
"""At least a minute, at most a year."""


class Notifier(BaseModel):
    """An Airflow notifier: its class as ``module.Class``, and the arguments of its constructor."""

    model_config = ConfigDict(frozen=True, extra="allow")

    path: str = Field(alias="class")


class Settings(BaseModel):
    """Settings of one table. ``[defaults]`` in the file applies to every table that does not override it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: str = Field(default="*/15 * * * *", description="cron expression (UTC) of the scheduled runs")
    watched: bool = Field(default=True, description="start a run as soon as a threshold is crossed")
    paused: bool = Field(default=True, description="create the DAG paused")
    owner: str = Field(default="firn", description="owner of the tasks in Airflow")
    tags: tuple[str, ...] = Field(default=(), description="tags of the DAG, in addition to `firn` and the namespace")
    engine: Literal["spark", "local", "auto"] = Field(
        default="spark", description="where jobs run; auto: small jobs run without Spark"
    )
    connection: str = Field(default=DEFAULT_CONNECTION, description="Airflow connection to Spark or Spark Connect")
    spark: dict[str, str] = Field(
        default={}, description="Spark settings of the driver, in addition to the connection's"
    )
    plans_per_job: int = Field(
        default=256,
        ge=1,
        description="maximum number of topic partitions per job; more if a lane would have more than 1000 jobs",
    )
    pool: str = Field(default="default_pool", description="Airflow pool of the tasks compact and validate")
    pool_slots: int = Field(default=1, ge=1, description="slots of the pool that each compact or validate task takes")
    retries: int = Field(default=5, ge=0, description="retries after a lost commit race, an outage or a crash")
    retry_seconds: int = Field(default=30, ge=1, description="delay before a retry")
    timeout_minutes: Minutes = Field(default=360, description="compact and validate tasks that run longer are killed")
    deadline_minutes: Minutes | None = Field(default=None, description="`notify` reports runs that take longer")
    approvers: tuple[str, ...] = Field(
        default=(), description="users who may approve a run that asks before publishing; empty: anyone"
    )
    approval_minutes: Minutes = Field(default=720, description="time to approve; then the run publishes nothing")
    notify: tuple[Notifier, ...] = Field(default=(), description="notifiers for failed verdicts and missed deadlines")

    @field_validator("spark")
    @classmethod
    def _master_is_the_connections(cls, spark: dict[str, str]) -> dict[str, str]:
        # Spark would silently use the connection's master instead, and a task can be a driver only in client mode.
        if taken := {"spark.master", "spark.submit.deployMode"} & spark.keys():
            raise ValueError(f"settings other than {', '.join(sorted(taken))}, which the Spark connection decides")
        return spark


def dag_id_of(table: str) -> str:
    """The id of the DAG of ``table``, such as ``firn__shop__orders``.

    No two tables share an id, because users who may read a DAG may see the pages of its table. A dot becomes two
    underscores. A character that could not be read back becomes its UTF-8 bytes, each as a dot and two hexadecimal
    digits. An id longer than Airflow allows is cut and ends with the SHA-256 of the name.
    """
    parts = (_ESCAPED.sub(_bytes_of, part) for part in table.split("."))
    whole = "__".join(("firn", *parts))
    if len(whole) <= LONGEST_ID:
        return whole
    end = f".sha256-{sha256(_utf8(table)).hexdigest()}"
    return whole[: LONGEST_ID - len(end)].rstrip(".") + end


def _bytes_of(character: re.Match[str]) -> str:
    return "".join(f".{byte:02x}" for byte in _utf8(character[0]))


def _utf8(text: str) -> bytes:
    # Python reads bytes that are not UTF-8 as surrogates.
    return text.encode("utf-8", "surrogatepass")


class TableSettings(Settings):
    """The settings of the table ``name``."""

    name: str

    @property
    def dag_id(self) -> str:
        return dag_id_of(self.name)

    @property
    def namespace(self) -> str:
        return self.name.split(".", maxsplit=1)[0]


@dataclass(frozen=True)
class Configured:
    """The content of the file ``path``: settings of ``tables``, and a message for each section that is ``refused``.

    ``patterns`` are the settings of the sections with patterns, whether or not a table matches.
    """

    path: Path
    tables: Sequence[TableSettings]
    patterns: Sequence[TableSettings]
    refused: Sequence[str]


def read_tables(path: Path, known: Sequence[str] = ()) -> Configured:
    """Read the tables in ``path``; a pattern stands for all of the ``known`` tables that match it.

    A table's own section overrides the patterns, a later pattern overrides an earlier one, and all override the
    defaults. A message names the table or pattern, the setting, its value and the allowed values. Raises ValueError if
    the file is not TOML or has an unknown section.
    """
    with path.open("rb") as file:
        document = tomllib.load(file)
    if unknown := set(document) - {"defaults", "tables"}:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))} is not a section; allowed: defaults, tables")
    defaults = document.get("defaults", {})
    sections: Mapping[str, Any] = document.get("tables", {})
    patterns, refused = _read({name: (defaults, own) for name, own in sections.items() if "*" in name}, path)
    refused += [
        f"{path}: pattern {one.name} matches no table that the DAG firn_maintain has found, which looks every hour"
        for one in patterns
        if not _matching(one.name, known)
    ]
    named = [name for name in sections if "*" not in name]
    found = [name for pattern in sections if "*" in pattern for name in _matching(pattern, known)]
    wanted = {}
    for name in dict.fromkeys(named + found):
        matched = [pattern for pattern in sections if "*" in pattern and fnmatchcase(name, pattern)]
        # The message about the pattern is enough for its tables.
        if {*matched} <= {one.name for one in patterns}:
            wanted[name] = (defaults, *(sections[pattern] for pattern in matched), sections.get(name, {}))
    tables, wrong = _read(wanted, path)
    return Configured(path, tables, patterns, [*refused, *wrong])


def _read(wanted: Mapping[str, Sequence[Any]], path: Path) -> tuple[list[TableSettings], list[str]]:
    """The settings of each name, of which later ones override earlier ones, and a message for each that is refused."""
    read, refused = [], []
    for name, layers in wanted.items():
        try:
            read.append(TableSettings(name=name, **reduce(or_, layers)))
        except ValidationError as error:
            refused.append(f"{path}: table {name}: {'; '.join(_problems(error))}")
        except TypeError as error:  # not a section, or a section with a key `name`
            refused.append(f"{path}: table {name}: {error}; allowed: {', '.join(Settings.model_fields)}")
    return read, refused


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _problems(error: ValidationError) -> Iterator[str]:
    for one in error.errors():
        setting = ".".join(map(str, one["loc"]))
        if one["type"] == "extra_forbidden":
            yield f"{setting} is not a setting; allowed: {', '.join(Settings.model_fields)}"
        else:
            yield f"{setting} is {one['input']!r}; allowed: {one['msg'].removeprefix('Input should be ')}"


def home() -> Path:
    """Firn's home, as ``Lake.load`` finds it. The workers share this folder with the API server."""
    return Path(os.environ.get("FIRN_HOME", ".firn")).resolve()


def known_tables(home: Path) -> list[str]:
    """The names of the tables of records at the last look; none if there was none, or if its file is damaged."""
    return sorted(read_document(home / _FOUND, list[str]) or ())


def configured_in(folder: Path) -> Configured:
    """The tables in the file FIRN_TABLES, by default ``firn.toml`` in ``folder``."""
    return read_tables(Path(os.environ.get("FIRN_TABLES") or folder / "firn.toml"), known_tables(home()))


def look(lake: "Lake") -> list[str]:
    """Store the names of all tables of records in the catalog, and return them.

    A table that can't be loaded keeps its place, so no outage takes its DAG away. Raises UnavailableError, and
    stores nothing, if the catalog does not list its tables.
    """
    from firnlake.errors import FirnError, NotFoundError
    from firnlake.table.columns import is_table_of_records

    before = known_tables(lake.home)
    found = []
    for name in lake.all_tables():
        try:
            if is_table_of_records(lake.table(name)):
                found.append(name)
        except NotFoundError:
            continue
        except FirnError as error:
            log.warning("%s", error)
            if name in before:
                found.append(name)
    write_document(lake.home / _FOUND, found)
    return found
