"""The configuration of the tables that Airflow maintains: a TOML file, written by hand.

It does not say what is due in a table, and when: the table's own properties decide that.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

DEFAULT_CONNECTION = "spark_default"


class Notifier(BaseModel):
    """An Airflow notifier: its class, as ``module.Class``, and its constructor's arguments."""

    model_config = ConfigDict(frozen=True, extra="allow")

    path: str = Field(alias="class")

    @property
    def arguments(self) -> dict[str, Any]:
        return self.model_extra or {}


class Settings(BaseModel):
    """Settings of one table. ``[defaults]`` in the file applies to every table that does not override it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: str = Field(default="*/15 * * * *", description="cron, UTC: how often to look beside watching")
    watched: bool = Field(default=True, description="whether the triggerer looks for crossed thresholds")
    paused: bool = Field(default=True, description="whether a new DAG starts paused")
    owner: str = Field(default="firn", description="whom Airflow names as the owner of the tasks")
    tags: tuple[str, ...] = Field(default=(), description="tags of the DAG beside `firn` and the namespace")
    engine: Literal["spark", "local", "auto"] = Field(
        default="spark", description="where records are worked on; auto: small jobs without Spark"
    )
    connection: str = Field(default=DEFAULT_CONNECTION, description="to Spark or Spark Connect, which run the work")
    spark: dict[str, str] = Field(default={}, description="settings for spark-submit, on top of the connection's")
    plans_per_job: int = Field(default=256, ge=1, description="topic partitions that one job takes")
    pool: str = Field(default="default_pool", description="the pool that compact and validate take their slots from")
    pool_slots: int = Field(default=1, ge=1, description="how many slots of it each takes")
    retries: int = Field(default=5, ge=0, description="how often what did not answer, or lost a race, is tried again")
    spark_retries: int = Field(default=1, ge=0, description="how often after a crash, which costs more")
    retry_seconds: int = Field(default=30, ge=1, description="how long to wait before that")
    timeout_minutes: int = Field(default=360, ge=1, description="compacting or validating that takes longer is killed")
    deadline_minutes: int | None = Field(default=None, ge=1, description="a run that takes longer is told to `notify`")
    approvers: tuple[str, ...] = Field(
        default=(), description="who may answer a run that asks before it publishes; none: anyone"
    )
    approval_minutes: int = Field(default=720, ge=1, description="without an answer for so long nothing is published")
    notify: tuple[Notifier, ...] = Field(default=(), description="whom to tell of failed verdicts and missed deadlines")

    @field_validator("spark")
    @classmethod
    def _master_is_the_connections(cls, spark: dict[str, str]) -> dict[str, str]:
        # spark-submit would silently take the connection's.
        if "spark.master" in spark:
            raise ValueError("settings other than spark.master, which is the Spark connection's to say")
        return spark


def dag_id_of(table: str) -> str:
    """The id of the DAG of ``table``; users who may read the DAG may see the pages of the table."""
    return "firn__" + table.replace(".", "__")


class TableSettings(Settings):
    """The settings of the table ``name``."""

    name: str

    @property
    def dag_id(self) -> str:
        return dag_id_of(self.name)

    @property
    def namespace(self) -> str:
        return self.name.split(".", maxsplit=1)[0]


def read_tables(path: Path) -> list[TableSettings]:
    """Read the tables in ``path``. Raises ValueError with the table, the setting, its value and the allowed values."""
    with path.open("rb") as file:
        document = tomllib.load(file)
    if unknown := set(document) - {"defaults", "tables"}:
        raise ValueError(f"{path}: {', '.join(sorted(unknown))} is not a section; allowed: defaults, tables")
    defaults = document.get("defaults", {})
    return [_table(path, name, defaults | own) for name, own in document.get("tables", {}).items()]


def _table(path: Path, name: str, found: Mapping[str, Any]) -> TableSettings:
    try:
        return TableSettings(name=name, **found)
    except ValidationError as error:
        problems = "; ".join(_problems(error))
        raise ValueError(f"{path}: table {name}: {problems}") from error


def _problems(error: ValidationError) -> Iterator[str]:
    for one in error.errors():
        setting = ".".join(map(str, one["loc"]))
        if one["type"] == "extra_forbidden":
            yield f"{setting} is not a setting; allowed: {', '.join(Settings.model_fields)}"
        else:
            yield f"{setting} is {one['input']!r}; allowed: {one['msg'].removeprefix('Input should be ')}"
