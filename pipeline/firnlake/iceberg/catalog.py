"""The catalog, the warehouse, and the folders of Firn's own files; error messages never contain credentials."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    ValidationError,
)
from pyiceberg.table import Table, Transaction
from pyiceberg.utils.config import Config
from requests import RequestException
from tenacity import (
    Retrying,
    retry,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from firnlake.errors import (
    FirnError,
    GoneError,
    LostError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    contained,
)

T = TypeVar("T")

EMBEDDED_NAME = "lake"
CATALOG_FILE = "catalog.db"
BUSY_SECONDS = 60
"""Maximum wait for a busy SQLite catalog, in seconds. Without a wait, all writers but one would fail at once."""

LOADING_MODE = "snapshot-loading-mode"
"""PyIceberg's property of a REST catalog. The value ``refs`` loads only the snapshots that branches and tags point at;
Firn needs the whole history, because it finds its own commits there."""
retried_load: Final = retry(
    retry=retry_if_exception_type(FileNotFoundError),
    stop=stop_after_attempt(5),
    wait=wait_random_exponential(multiplier=0.02, max=0.2),
    reraise=True,
)
"""Decorator of a function that loads a table. If writers delete old metadata files after a commit
(write.metadata.delete-after-commit.enabled), the file that the catalog names may be deleted before it is read. By then
the catalog names a newer file."""

_CREDENTIAL: Final = re.compile(
    r"(secret-access-key|token|credential|password|account-key|client-secret|connection-string|authorization)$", re.I
)
"""Pattern of the names of properties that hold credentials (PyIceberg docs, "Catalogs" and "FileIO")."""


@dataclass(frozen=True)
class Lake:
    """A catalog (name and PyIceberg properties) and Firn's home folder on this machine.

    The name is part of the SQL catalog's key, so every client must use the same name.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)  # contains credentials
    home: Path

    @classmethod
    def load(
        cls,
        home: Path | None = None,
        catalog: str | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> "Lake":
        """Load the lake that PyIceberg's configuration names; the embedded lake if the configuration names none.

        ``catalog`` is one of several in the configuration, or the name of a catalog that only ``properties`` describe.
        Raises RefusedError when several catalogs are configured and none is the default.
        """
        home = (home or Path(os.environ.get("FIRN_HOME", ".firn"))).resolve()
        config = Config()
        known = config.get_known_catalogs()
        default = config.get_default_catalog_name()
        if catalog is None and not known:
            embedded = cls.embedded(home)
            return replace(embedded, properties={**embedded.properties, **properties})
        name, *others = [catalog] if catalog is not None else [default] if default in known else known
        if others:
            raise RefusedError(
                f"several catalogs are configured ({', '.join(sorted(known))}) and none is the default; allowed: one "
                "of them as `default-catalog` in .pyiceberg.yaml, or as PYICEBERG_DEFAULT_CATALOG"
            )
        configured = config.get_catalog_config(name) or {}
        # PyIceberg itself reads nested settings such as `auth` from its configuration; as text they would be useless.
        flat = {key: str(value) for key, value in configured.items() if not isinstance(value, dict | list)}
        return cls(name, {**flat, **properties}, home)

    @classmethod
    def embedded(cls, home: Path) -> "Lake":
        """A lake with a SQLite catalog and a warehouse folder under ``home``; refuses a path with `?` or `#`."""
        home = home.resolve()
        if {"?", "#"} & set(str(home)):
            raise RefusedError(f"folder {home} can't hold a lake; allowed: a path without ? and # (FIRN_HOME)")
        return cls(
            EMBEDDED_NAME,
            {
                "type": "sql",
                # SQLAlchemy decodes the path of the catalog; PyIceberg and Spark take that of the warehouse literally.
                "uri": f"{_address_of(home)}?timeout={BUSY_SECONDS}",
                "warehouse": f"file://{home / 'warehouse'}",
            },
            home,
        )

    @property
    def exists(self) -> bool:
        """False for an embedded lake whose catalog file has not been created yet; True for every other lake."""
        return not self._is_embedded or (self.home / CATALOG_FILE).exists()

    @property
    def _is_embedded(self) -> bool:
        return self.properties.get("uri", "").partition("?")[0] == _address_of(self.home)

    @cached_property
    def catalog(self) -> Catalog:
        """The PyIceberg catalog. Raises RefusedError if it is configured wrongly, UnavailableError if it is down."""
        from sqlalchemy.exc import ArgumentError

        if self._is_embedded:
            self.home.mkdir(parents=True, exist_ok=True)
        try:
            with self.answering():
                catalog = load_catalog(self.name, **self.properties)
        except (NotInstalledError, ArgumentError, ValueError) as error:
            raise RefusedError(
                f"catalog {self.name} ({self.address}) can't be used as configured: {self.said(error)}; "
                "allowed: a catalog as in PyIceberg's documentation, `Catalogs`, and the extra for it installed"
            ) from error
        # Set after loading, because settings that a server gives to all clients override a client's configuration.
        catalog.properties[LOADING_MODE] = "all"
        return catalog

    @property
    def reports_folder(self) -> Path:
        """Folder of validation results and data-quality pages."""
        return self.home / "reports"

    @property
    def cache_folder(self) -> Path:
        """Folder of the manifest cache; deleting the folder loses no data, only time."""
        return self.home / "cache"

    def table(self, identifier: str) -> Table:
        """Load the table ``namespace.name``. Raises RefusedError when it is misnamed, does not exist or is unreadable.

        Methods that only read never create the embedded catalog, so a command in a wrong folder leaves no files there.
        """
        namespace, _, name = identifier.rpartition(".")
        if not namespace or not name:
            raise RefusedError(f"table {identifier!r} is not a table name; allowed: namespace.name")
        if not self.exists:
            raise NotFoundError(
                f"table {identifier} does not exist: there is no catalog {self.home / CATALOG_FILE}; allowed: a lake's "
                "folder as FIRN_HOME, or a catalog in PyIceberg's configuration; `firn create` makes a lake",
            )
        try:
            with self.answering():
                try:
                    return self._loaded(identifier)
                except FileNotFoundError as error:
                    raise GoneError(f"table {identifier}: its metadata file is gone: {error}") from error
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            others: list[str] = []
            with suppress(Exception):  # who may not list the tables hears of none
                others = [one for one in self.all_tables() if one.startswith(f"{namespace}.")]
            raise NotFoundError(
                f"table {identifier} does not exist in catalog {self.name} ({self.address}); found: "
                f"{', '.join(others[:20]) or f'no table in namespace {namespace}'}"
                f"{'; FIRN_HOME chooses another lake' if self._is_embedded else ''}",
            ) from error
        except ValidationError as error:
            reason = " ".join(self.said(error).split()).partition(" For further information")[0]
            raise RefusedError(f"table {identifier}: its metadata file can't be read: {reason}") from error

    @retried_load
    def _loaded(self, identifier: str) -> Table:
        return self.catalog.load_table(identifier)

    def all_tables(self) -> list[str]:
        """Identifiers of all tables of the catalog, including those in nested namespaces, sorted."""
        tables: list[str] = []
        with self.answering():
            waiting = list(self.catalog.list_namespaces()) if self.exists else []
            while waiting:
                namespace = waiting.pop()
                # The error means that the namespace was just dropped, or that the catalog has no nesting (BigQuery).
                with suppress(NoSuchNamespaceError):
                    tables += [".".join(identifier) for identifier in self.catalog.list_tables(namespace)]
                    waiting += self.catalog.list_namespaces(namespace)
        return sorted(tables)

    def create_namespace(self, namespace: str) -> None:
        """Create ``namespace`` unless it exists."""
        with self.answering(), suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(namespace)

    def until_committed(self, action: Callable[[], T]) -> T:
        """Run ``action``, a change of the catalog without a snapshot. If a commit of another process comes first, or a
        SQL catalog is busy, repeat the action, for at most BUSY_SECONDS.

        If waiting could cause a deadlock, SQLite ignores the busy timeout and refuses a write at once. ``action`` must
        load its table in each try, and change nothing if its change is already there. Raises UnavailableError when no
        try has succeeded within BUSY_SECONDS.
        """
        attempts = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, CommitFailedException) or _is_busy(error)),
            stop=stop_after_delay(BUSY_SECONDS),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            reraise=True,
        )
        try:
            with self.answering():
                return attempts(action)
        except CommitFailedException as error:
            raise UnavailableError(
                f"catalog {self.name}: lost every race against other commits for {BUSY_SECONDS} s: {error}; try "
                "again later"
            ) from error

    def transact(self, identifier: str, action: Callable[[Table, Transaction], T]) -> T:
        """Commit what ``action`` changes in the metadata of table ``identifier``, without a snapshot.

        Each try loads the table, and makes all checks again. Retries and raises as ``until_committed`` does.
        """

        def commit() -> T:
            table = self.table(identifier)
            # PyIceberg's own retries would commit on metadata that nobody has checked. Commits do not store this.
            properties = table.metadata.properties | {"commit.retry.num-retries": "0"}
            metadata = table.metadata.model_copy(update={"properties": properties})
            checked = Table(table.name(), metadata, table.metadata_location, table.io, self.catalog)
            with checked.transaction() as transaction:
                return action(table, transaction)

        return self.until_committed(commit)

    def set_properties(self, identifier: str, properties: Mapping[str, str]) -> None:
        """Set ``properties`` of table ``identifier``."""
        self.transact(identifier, lambda _, transaction: transaction.set_properties(dict(properties)))

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn any error of a catalog or store that does not answer, or has lost a file (LostError), into an
        UnavailableError that names the catalog."""
        from sqlalchemy.exc import DatabaseError

        try:
            yield
        except FileNotFoundError as error:
            reason = " ".join(self.said(error).split())
            raise LostError(
                f"catalog {self.name}: a file in use is gone: {reason}; required: only table maintenance deletes "
                "files of a table; try again, because the table may have changed"
            ) from error
        except (DatabaseError, RESTError, RequestException, ConnectionError, TimeoutError) as error:
            reason = self.said(getattr(error, "orig", None) or error).splitlines()[0]
            raise UnavailableError(f"catalog {self.name} ({self.address}) can't be reached: {reason}") from error
        except OSError as error:
            reason = " ".join(self.said(error).split())
            raise UnavailableError(f"the store of catalog {self.name} failed: {reason}; try again later") from error

    @contextmanager
    def reading(self, identifier: str) -> Iterator[None]:
        """Turn any error of reading table ``identifier`` into a FirnError that names the table."""
        subject = f"table {identifier}"
        try:
            with self.answering():
                yield
        except UnavailableError as error:
            if subject in str(error):
                raise
            raise UnavailableError(f"{subject}: {error}") from error
        except FirnError:
            raise
        except Exception as error:
            raise contained(error, f"{subject} can't be read") from error

    def said(self, error: BaseException) -> str:
        """The message of ``error`` without credentials."""
        return without_credentials(str(error), self.properties)

    @property
    def address(self) -> str:
        """The catalog's address, or the file of an embedded catalog, without credentials."""
        if self._is_embedded:
            return str(self.home / CATALOG_FILE)
        return self.properties.get("uri", "no uri").rpartition("@")[2].partition("?")[0]


def _address_of(home: Path) -> str:
    """The address of the catalog that is embedded in folder ``home``."""
    return f"sqlite:///{quote(str(home / CATALOG_FILE))}"


def _is_busy(error: BaseException) -> bool:
    from sqlalchemy.exc import OperationalError

    return isinstance(error, OperationalError) and not error.connection_invalidated


def without_credentials(text: str, properties: Mapping[str, str]) -> str:
    """``text``, such as a library's error message, with every credential of ``properties`` redacted: the values of
    properties named like a credential, and passwords in addresses."""
    values = {value for name, value in properties.items() if value and _CREDENTIAL.search(name)}
    for password in filter(None, map(_password, properties.values())):
        values |= {password, unquote(password)}
    # The longest credential first, because a shorter one may be part of it.
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def _password(address: str) -> str | None:
    login, _, _ = urlsplit(address).netloc.rpartition("@")
    return login.partition(":")[2] or None
