"""Which catalog, which warehouse, and where Firn keeps what it writes beside them.

PyIceberg's own configuration decides (``.pyiceberg.yaml``, ``PYICEBERG_CATALOG__<NAME>__…``), so who has PyIceberg
configured has Firn configured. With nothing configured the lake is embedded: a SQLite catalog and a warehouse folder
under ``$FIRN_HOME`` (default ``.firn``).
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
)
from pyiceberg.table import Table
from pyiceberg.utils.config import Config
from requests import RequestException
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from tenacity import (
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from pipeline.errors import MetadataLostError, NotFoundError, RefusedError, UnavailableError
from pipeline.lake.secrets import without_credentials

T = TypeVar("T")

EMBEDDED_NAME = "lake"
BUSY_SECONDS = 60
"""How long a busy SQLite catalog is waited for. SQLite has one writer; both clients would fail at once otherwise."""

METADATA_TRIES = 5
"""So often is a table loaded whose metadata file goes away meanwhile."""


@dataclass(frozen=True)
class Lake:
    """A catalog by its name and PyIceberg properties, and Firn's home folder on this machine.

    The name is part of the SQL catalog's key, so every client must use the same.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)  # credentials among them
    home: Path

    @classmethod
    def load(cls, home: Path | None = None) -> "Lake":
        """The lake that PyIceberg's configuration names, else the embedded one.

        Raises RefusedError when several catalogs are configured and none is the default.
        """
        home = (home or Path(os.environ.get("FIRN_HOME", ".firn"))).resolve()
        config = Config()
        known = config.get_known_catalogs()
        if not known:
            return cls.embedded(home)
        default = config.get_default_catalog_name()
        if default in known:
            name = default
        elif len(known) == 1:
            name = known[0]
        else:
            raise RefusedError(
                f"several catalogs are configured ({', '.join(sorted(known))}) and none is the default; allowed: set "
                "`default-catalog` in .pyiceberg.yaml or PYICEBERG_DEFAULT_CATALOG to one of them"
            )
        properties = config.get_catalog_config(name) or {}
        # What is nested, such as `auth`, PyIceberg takes from its configuration itself: as text it could not.
        flat = {key: str(value) for key, value in properties.items() if not isinstance(value, dict | list)}
        return cls(name, flat, home)

    @classmethod
    def embedded(cls, home: Path) -> "Lake":
        """SQLite catalog and warehouse folder under ``home``, whose path can't hold what ends the path of a URI."""
        home = home.resolve()
        if {"?", "#"} & set(str(home)):
            raise RefusedError(f"folder {home} can't hold a lake; allowed: a path without ? and # (FIRN_HOME)")
        return cls(
            EMBEDDED_NAME,
            {
                "type": "sql",
                "uri": f"sqlite:///{home / 'catalog.db'}?timeout={BUSY_SECONDS}",
                # Not percent-encoded: both clients take what follows the scheme as it is.
                "warehouse": f"file://{home / 'warehouse'}",
            },
            home,
        )

    @cached_property
    def catalog(self) -> Catalog:
        """The PyIceberg catalog; raises UnavailableError when it can't be reached."""
        if self.properties.get("uri", "").startswith(f"sqlite:///{self.home}"):
            self.home.mkdir(parents=True, exist_ok=True)
        try:
            with self.reachable():
                return load_catalog(self.name, **self.properties)
        except (NotInstalledError, ArgumentError, ValueError) as error:
            raise RefusedError(
                f"catalog {self.name} ({self._address()}) is not usable as configured: {self._said(error)}; "
                "allowed: what PyIceberg's documentation lists under `Catalogs`, with its extra installed"
            ) from error

    @property
    def plans_folder(self) -> Path:
        """Where ``firn plan --write`` and the DAGs put plans for the next task to read."""
        return self.home / "plans"

    @property
    def reports_folder(self) -> Path:
        """Where validation results and data-quality pages are kept."""
        return self.home / "reports"

    @property
    def runs_folder(self) -> Path:
        """Which run of a scheduler works on which table."""
        return self.home / "runs"

    @property
    def cache_folder(self) -> Path:
        """What can be made again: what was read of manifests."""
        return self.home / "cache"

    def table(self, identifier: str) -> Table:
        """Load the table ``namespace.name``; RefusedError when it does not exist or is misnamed."""
        namespace, _, name = identifier.rpartition(".")
        if not namespace or not name:
            raise RefusedError(f"table {identifier!r} is not a table name; allowed: namespace.name")
        try:
            with self.reachable():
                return self._loaded(identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise NotFoundError(
                identifier,
                f"table {identifier} does not exist in catalog {self.name}; found: {self._neighbours(namespace)}",
            ) from error
        except FileNotFoundError as error:
            raise MetadataLostError(identifier, f"table {identifier}: its metadata file is gone: {error}") from error

    def _loaded(self, identifier: str) -> Table:
        # Where writers delete old metadata files after a commit (write.metadata.delete-after-commit.enabled), the one
        # that the catalog names may go before it is read. Then it names another.
        attempts = Retrying(
            retry=retry_if_exception_type(FileNotFoundError),
            stop=stop_after_attempt(METADATA_TRIES),
            wait=wait_random_exponential(multiplier=0.02, max=0.2),
            reraise=True,
        )
        return attempts(self.catalog.load_table, identifier)

    def tables(self, namespace: str) -> list[str]:
        """Identifiers of all tables of ``namespace``, stages and quarantines included, sorted; none when unknown."""
        try:
            with self.reachable():
                return sorted(".".join(identifier) for identifier in self.catalog.list_tables(namespace))
        except NoSuchNamespaceError:
            return []

    def namespaces(self) -> list[str]:
        """All namespaces of the catalog, sorted."""
        with self.reachable():
            return sorted(".".join(namespace) for namespace in self.catalog.list_namespaces())

    def create_namespace(self, namespace: str) -> None:
        """Create ``namespace`` unless it is there."""
        with self.reachable():
            try:
                self.catalog.create_namespace(namespace)
            except NamespaceAlreadyExistsError:
                return

    def when_free(self, action: Callable[[], T]) -> T:
        """Run a catalog ``action`` again while a SQL catalog says it is busy, for at most BUSY_SECONDS.

        SQLite refuses a write at once, whatever the busy timeout, when waiting could deadlock. Such a refusal changed
        nothing, so running it again is safe. A connection that broke is another matter: its last request may have been
        carried out, and who asked has to find out.
        """
        attempts = Retrying(
            retry=retry_if_exception(_is_busy),
            stop=stop_after_delay(BUSY_SECONDS),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        with self.reachable():
            return attempts(action)

    def until_committed(self, action: Callable[[], T]) -> T:
        """Run ``action`` again while other processes commit to the same table, for at most BUSY_SECONDS.

        A commit that was refused changed nothing. ``action`` must load the table that it commits to, each time.
        """
        attempts = Retrying(
            retry=retry_if_exception_type(CommitFailedException),
            stop=stop_after_delay(BUSY_SECONDS),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        try:
            return attempts(lambda: self.when_free(action))
        except CommitFailedException as error:
            raise UnavailableError(
                f"catalog {self.name}: other commits got in the way for {BUSY_SECONDS} s: {error}; try again later"
            ) from error

    def set_properties(self, identifier: str, properties: Mapping[str, str]) -> None:
        """Set ``properties`` of table ``identifier``, again while other processes commit to it."""

        def commit() -> None:
            with self.table(identifier).transaction() as transaction:
                transaction.set_properties(dict(properties))

        self.until_committed(commit)

    def single_attempt(self, table: Table) -> Table:
        """``table`` with PyIceberg's own retry off: it would commit on a snapshot that nobody looked at.

        The property is set on this copy only: a table update carries changes, not the properties it was made under.
        """
        metadata = table.metadata.model_copy(
            update={"properties": table.metadata.properties | {"commit.retry.num-retries": "0"}}
        )
        return Table(table.name(), metadata, table.metadata_location, table.io, self.catalog)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Turn the ways in which catalog or store fail to answer into one UnavailableError that names them.

        A FileNotFoundError is an answer: what it means is for the caller to say.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except (DatabaseError, RESTError, RequestException, ConnectionError, TimeoutError) as error:
            reason = self._said(getattr(error, "orig", None) or error).splitlines()[0]
            raise UnavailableError(f"catalog {self.name} ({self._address()}) can't be reached: {reason}") from error
        except OSError as error:
            reason = " ".join(self._said(error).split())
            raise UnavailableError(f"the store of catalog {self.name} failed: {reason}; try again later") from error

    @contextmanager
    def answering(self) -> Iterator[None]:
        """``reachable`` around a whole piece of work: a file that is gone meanwhile is an UnavailableError as well."""
        try:
            with self.reachable():
                yield
        except FileNotFoundError as error:
            reason = " ".join(self._said(error).split())
            raise UnavailableError(
                f"catalog {self.name}: a file is gone that was in use: {reason}; allowed: none of a table's files is "
                "removed by hand; try again, as the table may have moved on"
            ) from error

    def _neighbours(self, namespace: str) -> str:
        tables = [table for table in self.tables(namespace) if "__stage_" not in table]
        return ", ".join(tables[:20]) or f"no table in namespace {namespace}"

    def _said(self, error: BaseException) -> str:
        return without_credentials(str(error), self.properties)

    def _address(self) -> str:
        """The catalog's address without credentials, fit for an error message."""
        return self.properties.get("uri", "no uri").rpartition("@")[2].partition("?")[0]


def _is_busy(error: BaseException) -> bool:
    return isinstance(error, OperationalError) and not error.connection_invalidated
