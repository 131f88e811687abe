"""`make release-check`: build the package, read it, and use it as a stranger would, in a clean environment per extra.

    python -m infra.setup.release [EXTRAS ...]

EXTRAS are `none`, `spark`, `airflow`, `airflow,spark`: all four by default. Prints a line for each check, and ends with
exit code 1 at the first that fails. What it makes lies in a temporary folder.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from email.parser import Parser
from pathlib import Path

from infra.environment import CHECKOUT

EXTRAS = ("none", "spark", "airflow", "airflow,spark")
TABLE, DAG = "shop.orders", "firn__shop__orders"
KEYS, RECORDS = 500, 2000
OTHERS = ("AIRFLOW", "FIRN_", "PYICEBERG_", "PYSPARK_", "PYTHON", "SPARK_", "VIRTUAL_ENV")
"""Variables that a stranger does not have."""
LAST_LINES = 25


class CheckError(Exception):
    """A check failed."""


@contextmanager
def check(what: str) -> Iterator[None]:
    """Print the line of a check once it has passed, with the seconds that it took."""
    started = time.monotonic()
    yield
    print(f"ok {time.monotonic() - started:5.0f} s  {what}", flush=True)


def call(command: Sequence[str | Path], folder: Path, environment: dict[str, str] | None = None) -> str:
    """The standard output of a command. Raises CheckError with its last lines when it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()[-LAST_LINES:]
        raise CheckError("\n".join([f"exit code {done.returncode} of {' '.join(map(str, command))}", *lines]))
    return done.stdout


def build(source: Path, folder: Path, target: str) -> Path:
    """Build `wheel` or `sdist` of the sources into a folder; the file."""
    call([sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder], source)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def of_metadata(files: dict[str, bytes], name: str) -> bytes:
    """A file of the wheel's folder of metadata, whose name has the version."""
    return next(content for path, content in files.items() if path.endswith(f".dist-info/{name}"))


def metadata(files: dict[str, bytes]) -> Message:
    """The metadata of a wheel."""
    return Parser().parsestr(of_metadata(files, "METADATA").decode())


def wrong(files: dict[str, bytes]) -> list[str]:
    """One line for each thing that is wrong with a wheel."""
    of = metadata(files)
    changelog, readme = ((CHECKOUT / name).read_text() for name in ("CHANGELOG.md", "README.md"))
    packages = {path.partition("/")[0] for path in files if ".dist-info/" not in path}
    expected = {
        "the changelog's newest version": (changelog.partition("\n## [")[2].partition("]")[0], of["Version"]),
        "the top-level names": ({"firnlake", "firnlake_expectations"}, packages),
        "the licence": ("Apache-2.0", of["License-Expression"]),
        "the licence's text": ((CHECKOUT / "LICENSE").read_bytes(), of_metadata(files, "licenses/LICENSE")),
        "the description": (readme.strip(), str(of.get_payload()).strip()),
        "the extras": ({"airflow", "spark"}, set(of.get_all("Provides-Extra", []))),
    }
    return [f"{what}: expected {want!r}, found {found!r}" for what, (want, found) in expected.items() if want != found]


def check_build(folder: Path) -> Path:
    """Build both archives and read them; the wheel."""
    with check("the wheel: version, changelog, licence, top-level names"):
        wheel = build(CHECKOUT, folder / "dist", "wheel")
        files = contents(wheel)
        if lines := wrong(files):
            raise CheckError("\n".join(lines))
    with check("the source archive builds the same wheel"):
        sdist = build(CHECKOUT, folder / "dist", "sdist")
        shutil.unpack_archive(sdist, folder / "source", filter="data")
        (source,) = (folder / "source").iterdir()
        again = contents(build(source, folder / "again", "wheel"))
        if differing := sorted(name for name in files.keys() | again.keys() if files.get(name) != again.get(name)):
            raise CheckError(f"{sdist.name} builds another wheel, different in: {', '.join(differing)}")
    return wheel


class Installed:
    """An environment with the wheel and an extra."""

    def __init__(self, folder: Path, extra: str) -> None:
        self.folder = folder
        self.extras = set() if extra == "none" else set(extra.split(","))
        self.engines = ("local", "spark") if "spark" in self.extras else ("local",)
        self.bin = folder / "venv" / "bin"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
        path = [one for one in os.environ["PATH"].split(os.pathsep) if not Path(one).is_relative_to(CHECKOUT)]
        self.for_pip = inherited | {"PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.environment = self.for_pip | {
            "PATH": os.pathsep.join([str(self.bin), *path]),
            "HOME": str(folder),  # the catalog that PyIceberg's configuration there names is none to try things on
            "FIRN_HOME": str(folder / "lake"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }

    def firn(self, *arguments: str) -> str:
        """Run the command as a user does."""
        return call([self.bin / "firn", *arguments], self.folder, self.environment)

    def install(self, wheel: Path) -> None:
        """Install by plain pip, with the constraints that ship where Airflow is part of it."""
        self.folder.mkdir(parents=True)
        call([sys.executable, "-m", "venv", self.bin.parent], self.folder, self.for_pip)
        wanted = [f"{wheel}[{','.join(sorted(self.extras))}]" if self.extras else str(wheel)]
        if "airflow" in self.extras:
            (self.folder / "constraints.txt").write_bytes(contents(wheel)["firnlake/airflow/constraints.txt"])
            wanted += ["--constraint", "constraints.txt"]
        pip = (str(self.bin / "python"), "-m", "pip")
        call([*pip, "install", "--quiet", *wanted], self.folder, self.for_pip)
        call([*pip, "check"], self.folder, self.for_pip)

    def check_readme(self) -> None:
        """The README's commands work as typed, in a folder of their own."""
        commands = (CHECKOUT / "README.md").read_text().partition("## Commands")[2].split("```")[1]
        (self.folder / "readme").mkdir()
        environment = self.environment | {"FIRN_HOME": str(self.folder / "readme" / ".firn")}
        call(["bash", "-ec", commands.removeprefix("sh")], self.folder / "readme", environment)

    def land(self, number: int) -> None:
        """Land the `number`-th file of records, which updates every key."""
        file = self.folder / f"part-{number}.jsonl"
        with file.open("w") as lines:
            for at in range(RECORDS * number, RECORDS * (number + 1)):
                record = {"key": f"order-{at % KEYS}", "value": f"{at}", "topic": "orders", "partition": at % 2}
                print(json.dumps(record | {"offset": at // 2, "timestamp": 1_767_225_600_000 + at}), file=lines)
        self.firn("land", TABLE, str(file))

    def check_compacted(self) -> None:
        """The table holds one record per key, all of them in the tail, and its newest commit keeps every promise."""
        (status,) = json.loads(self.firn("status", TABLE, "--json"))
        if (records := [level["records"] for level in status["levels"]]) != [0, 0, 0, KEYS]:
            raise CheckError(f"records by level: expected {KEYS} in L3 alone, found {records}")
        self.firn("verify", TABLE)

    def check_engine(self, number: int, engine: str) -> None:
        """Land and compact with the command."""
        self.land(number)
        self.firn("run", TABLE, "--lane", "full", "--force", "--engine", engine)
        self.check_compacted()

    def check_auto(self) -> None:
        """Without pyspark a large job runs in the process, and one line says why."""
        self.land(0)
        self.environment["FIRN_LOCAL_MAX_BYTES"] = "0"
        said = self.firn("run", TABLE, "--lane", "full", "--force")
        if said.count("pyspark is not installed") != 1:
            raise CheckError(f"firn run says nothing of the missing pyspark, or says it twice:\n{said}")

    def check_dag(self, number: int) -> None:
        """Land, and compact with the table's DAG, on Spark where it is there."""
        dags = self.folder / "dags"
        dags.mkdir()
        shutil.copy(CHECKOUT / "dags" / "firn.py", dags)
        (dags / "firn.toml").write_text(f'[tables."{TABLE}"]\nengine = "{self.engines[-1]}"\n')
        self.land(number)
        airflow = self.bin / "airflow"
        call([airflow, "db", "migrate"], self.folder, self.environment)
        asked = json.dumps({"lane": "full", "force": True})
        call([airflow, "dags", "test", DAG, "--conf", asked], self.folder, self.environment)
        self.check_compacted()


def check_extra(wheel: Path, folder: Path, extra: str) -> None:
    """Install the wheel with an extra, and use it."""
    installed = Installed(folder, extra)
    with check(f"{extra}: pip install"):
        installed.install(wheel)
    installed.firn("create", TABLE)
    if not installed.extras:
        with check(f"{extra}: the README's commands, as typed"):
            installed.check_readme()
        with check(f"{extra}: land, run where Spark would be taken if it were there"):
            installed.check_auto()
        return
    for number, engine in enumerate(installed.engines):
        with check(f"{extra}: land, run --engine {engine}, status, verify"):
            installed.check_engine(number, engine)
    if "airflow" in installed.extras:
        with check(f"{extra}: one run of the table's DAG, engine {installed.engines[-1]}"):
            installed.check_dag(2)


def main() -> int:
    """Entry point."""
    extras = sys.argv[1:] or EXTRAS
    if unknown := set(extras) - set(EXTRAS):
        print(f"firn: no such extras: {' '.join(unknown)}; allowed: {' '.join(EXTRAS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="firn-release-") as name:
        folder = Path(name)
        what = "the archives"
        try:
            wheel = check_build(folder)
            for what in extras:
                check_extra(wheel, folder / what, what)
        except CheckError as error:
            print(f"FAILED {what}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
