"""``firn.report.samples`` applies to all output of Firn that shows records, refused plans included."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firnlake.airflow.dag.approval import figures_of
from firnlake.airflow.site.page import overview_html, reports_html, table_html
from firnlake.cli.main import main
from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import records as quarantined
from firnlake.inspect.status.gather import status_of, write_snapshot
from firnlake.inspect.status.rows import Query, read
from firnlake.job.job import jobs_of
from firnlake.job.stage import Stage, stages_of
from firnlake.publish.publish import publish_job
from firnlake.validate.validate import build_reports, validate
from firnlake_expectations.wording import digest
from tests.support.tampering import change_value
from tests.support.topics import NOW, Record, Topic

SECRETS = {"key": b"kept-secret-key", "value": b"kept-secret-value", "header": b"kept-secret-header"}
FORMS = {name: (secret, secret.hex().encode()) for name, secret in SECRETS.items()}
DATA = {".parquet", ".avro", ".db"}
"""Places of the records and their bounds: the table's own files, for readers of the table."""


def secret(offset: int, partition: int, *, key: bytes | None = SECRETS["key"], value: bytes = b"") -> Record:
    headers = (("h", SECRETS["header"]),)
    return Record(offset, key, SECRETS["value"] + value, partition, headers=headers)


def worked(topic: Topic, samples: str) -> str:
    """Partition 0 fails validation, 1 is refused for two records on one offset, 2 has quarantined records: all that
    functions said of it."""
    topic.create(report_samples=samples)
    others = [Record(5, b"end", b"e", partition) for partition in range(3)]
    topic.land(
        [secret(0, 0), secret(1, 0, value=b" 1"), secret(2, 2, key=None), *others],
        [secret(0, 1), secret(0, 1, value=b" another")],
    )
    plans = topic.plans("full", force=True)
    outcomes = compact(topic.lake, plans, LocalEngine())
    stage = Stage.load(topic.lake, outcomes[0].stage)
    broken(stage)
    judged = validate(topic.lake, [stage.identifier], LocalEngine())
    assert sorted(one.passed for one in judged) == [False, True]
    asked = figures_of(topic.lake, jobs_of(plans))
    done = publish_job(topic.lake, stage.identifier)
    assert len(done.publications) == 1
    told = [str(outcome.error) for outcome in outcomes] + [one.failure for one in judged]
    told += [str(one.verdict.to_dict()) for one in judged if one.verdict] + [asked, str(done.failures)]
    return "\n".join([*told, *(plan.model_dump_json() for plan in plans)])


def broken(stage: Stage) -> None:
    """Change a value of partition 0 after it was booked."""
    (plan_id,) = [plan.id for plan in stage.plans if plan.partition == 0]
    (file,) = stage.files[plan_id].kept
    change_value(file, 1, b"x")


def pages(lake: Lake, table: str) -> str:
    summary = write_snapshot(lake, table, NOW).summary
    found = read(lake.home, table)
    assert found
    verdicts = found.details().verdicts
    return "\n".join(
        [overview_html([summary], {}, NOW), table_html(found, Query(), NOW), reports_html("", table, verdicts)]
    )


Firn = Callable[..., str]


@pytest.fixture
def firn(topic: Topic, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process; what it prints."""
    monkeypatch.setattr(Lake, "load", lambda: topic.lake)

    def run(*arguments: str) -> str:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["firn", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capfd.readouterr()
        assert not left.value.code, printed.err
        return printed.out + printed.err

    return run


def listings(firn: Firn, table: str) -> str:
    """Output of the commands that only read the table."""
    commands = (
        ["status"],
        ["stages"],
        ["quarantine"],
        ["quarantine", "--records"],
        ["quarantine", "--records", "--json"],
    )
    return "\n".join(firn(command, table, *options) for command, *options in commands)


def files(folder: Path) -> bytes:
    """Everything that lies below ``folder`` but the records."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in DATA]
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in found)


@pytest.mark.parametrize("samples", ["none", "keys", "full"])
def test_no_output_shows_more_than_it_may(
    topic: Topic, firn: Firn, samples: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    said = worked(topic, samples)
    index = build_reports(topic.lake)
    assert len(stages_of(topic.lake, topic.table)) >= 1, "the marker of the refused plan is looked through as well"
    status = str(status_of(topic.lake, topic.table, NOW).to_dict())
    said += "\n".join([status, pages(topic.lake, topic.table)])
    said += str([(one.value_bytes, one.value) for one in quarantined(topic.lake, topic.table, 10)])
    printed = capfd.readouterr()
    said += listings(firn, topic.table)
    # Each table has a name of its own in the lake that the tests share.
    own = topic.table.rpartition(".")[2]
    stored = b"\n".join(
        [
            *(files(folder) for folder in topic.lake.home.rglob(f"{own}") if folder.is_dir()),
            *(files(topic.lake.home / name) for name in ("cache", "status", "plans", "runs")),
            *(path.read_bytes() for path in of_table(index.parent, topic.table)),
        ]
    )
    everything = "\n".join([said, caplog.text, printed.out, printed.err]).encode() + stored
    found = {name for name, forms in FORMS.items() if any(form in everything for form in forms)}
    reported = b"\n".join(path.read_bytes() for path in of_table(index.parent, topic.table))
    if samples == "full":
        assert found >= {"key", "value"}
        assert all(SECRETS[name] in reported for name in ("key", "value"))
        return
    assert found == set()
    name = digest([SECRETS["key"]])
    assert (name in everything.decode(errors="replace")) == (samples == "keys")
    if samples == "keys":
        assert name.encode() in reported


def of_table(reports: Path, table: str) -> list[Path]:
    """Results and pages about ``table``; those of other tests' tables lie beside them."""
    return [path for path in reports.rglob("*.*") if path.is_file() and table.encode() in path.read_bytes()]
