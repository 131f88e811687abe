"""PostgreSQL for the SQL catalog, and for what the REST catalog keeps: a cluster of its own in the stack's folder."""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import URL, create_engine, text
from sqlalchemy.exc import OperationalError

from infra.processes import Process, start
from infra.stack.settings import DATABASE, HOST, Settings, write_private

SMALL = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "60",
    # A catalog that is made anew for each test; a real one leaves this alone.
    "fsync": "off",
}
_PLACE = "postgres.place"


def programs() -> Path | None:
    """The folder of PostgreSQL's programs: on the PATH, or where Debian puts them; None when there are none."""
    paths = [shutil.which("initdb"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")))]
    return next((Path(one).resolve().parent for one in paths if one), None)


def serve(folder: Path, settings: Settings, environment: Mapping[str, str]) -> Process:
    """Start PostgreSQL on the data folder of the stack in ``folder``, which is made when there is none."""
    bin_folder = programs()
    if bin_folder is None:
        raise SystemExit("firn: no initdb on the PATH or in /usr/lib/postgresql; allowed: Debian's package postgresql")
    user = _user()
    data = _place(folder, user) / "data"
    if not (data / "PG_VERSION").exists():
        _initialise(bin_folder, data, settings, user)
    options = [f"--{name}={value}" for name, value in SMALL.items()]
    command = [str(bin_folder / "postgres"), "-D", str(data), "-p", str(settings.postgres_port), *options]
    return start("postgres", command, folder, environment, user)


def prepared(settings: Settings) -> bool:
    """Make the role and the database that catalogs use unless they are there; False while nobody answers.

    The role owns its database and nothing else: a catalog needs no more.
    """
    login = URL.create(
        "postgresql+psycopg2", "postgres", settings.superuser_password, HOST, settings.postgres_port, "postgres"
    )
    # A database can't be made within a transaction.
    engine = create_engine(login, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            asked = text("SELECT 1 FROM pg_database WHERE datname = :name")
            if connection.execute(asked, {"name": DATABASE}).first() is None:
                # Both are our own, without quotes in them.
                connection.execute(text(f"CREATE ROLE firn LOGIN PASSWORD '{settings.database_password}'"))
                connection.execute(text(f"CREATE DATABASE {DATABASE} OWNER firn"))
    except OperationalError:
        return False
    finally:
        engine.dispose()
    return True


def remove(folder: Path) -> None:
    """Delete what does not lie in ``folder`` itself."""
    place = folder / _PLACE
    if place.exists():
        shutil.rmtree(place.read_text(), ignore_errors=True)


def _user() -> str | None:
    """Whom to run as: PostgreSQL refuses root. None: as who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _place(folder: Path, user: str | None) -> Path:
    """The folder of PostgreSQL's own: in ``folder``, unless ``user`` can't get there; then a temporary one."""
    note = folder / _PLACE
    if note.exists() and Path(note.read_text()).exists():
        return Path(note.read_text())
    above = (folder, *folder.parents)
    if user is None or all(one.stat().st_mode & stat.S_IXOTH for one in above):
        place = folder / "postgres"
        place.mkdir(exist_ok=True)
    else:
        place = Path(tempfile.mkdtemp(prefix="firn-postgres-"))
        note.write_text(str(place))
    if user is not None:
        shutil.chown(place, user)
    return place


def _initialise(bin_folder: Path, data: Path, settings: Settings, user: str | None) -> None:
    password = data.parent / "password"
    write_private(password, settings.superuser_password)
    if user is not None:
        shutil.chown(password, user)
    command = [str(bin_folder / "initdb"), "-D", str(data), "-U", "postgres", "--auth=scram-sha-256"]
    command += [f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync"]
    done = subprocess.run(command, user=user, group=user, cwd=data.parent, capture_output=True, text=True, check=False)
    password.unlink()
    if done.returncode != 0:
        raise SystemExit(f"firn: initdb failed: {done.stderr.strip()}")
