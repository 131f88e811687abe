"""Names from a table are text wherever they are put: never SQL, paths, HTML, Markdown, or what a terminal obeys."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firnlake.airflow.dag.approval import figures_of
from firnlake.airflow.site.page import overview_html, problem_html, reports_html, table_html
from firnlake.cli.main import main
from firnlake.errors import FirnError, RefusedError, printable
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.rows import Query, Status, read
from firnlake.job import lease
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.condition import quoted
from firnlake.table.records import check_name
from firnlake_expectations.wording import plain
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.fuzz import HOSTILE_NAMES
from tests.support.lakes import NOW, append, only_plan, row
from tests.support.overviews import TAKEN, publication_of, row_of, verdict_of, write_overview
from tests.support.pages import Page

Firn = Callable[..., tuple[int, str, str]]
OURS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "a", "span", "dl", "dt", "dd", "div"}
OURS |= {"table", "tr", "th", "td", "br", "small", "nav", "form", "input", "button", "i", "svg", "rect", "code"}


@pytest.fixture
def firn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lake: Lake) -> Firn:
    """Run ``firn`` in this process on ``lake``: exit code, standard output, standard error."""
    monkeypatch.setattr(Lake, "load", lambda: lake)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["firn", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return run


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_pages_show_names_as_text(tmp_path: Path, name: str) -> None:
    table = name or "nameless"
    rows = [row_of(name, 0, name=f"{name}-0", due=[name], in_the_way=[name], waiting=[name], condition="due")]
    broken = verdict_of(3, topic_partition=name, failures=(name,), plan=name, table=table)
    done = publication_of(0).model_copy(update={"what": name, "reason": name})
    write_overview(tmp_path, table, rows, verdicts=(broken,), publications=(done,), strays=(name,), doubts=(name,))
    found = read(tmp_path, table)
    assert isinstance(found, Status)
    for page in (
        table_html(found, Query(text=name), TAKEN),
        overview_html([found.summary], {table: name}, TAKEN),
        reports_html("../", None, [broken]),
        problem_html(name, name),
    ):
        seen = Page(page)
        assert seen.tags <= OURS
        assert printable(name).strip() in seen.text
        assert not [link for link in seen.links if link.startswith(("http", "javascript", "//", "/"))]
        assert all(letter.isprintable() or letter == "\n" for letter in page)


def test_the_terminal_sees_lines_of_text(lake: Lake, table: str, firn: Firn) -> None:
    append(lake, [row(offset, topic=name) for name in HOSTILE_NAMES for offset in range(2)])
    for arguments in (["status"], ["plan", "--lane", "full", "--force"], ["explain", "--key", "k"]):
        command, *options = arguments
        code, out, err = firn(command, table, *options, "--limit", "1000")
        assert code == 0, err
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)
        # A long name may be broken into several lines of its cell.
        assert all(f"{printable(name)}-0" in out for name in HOSTILE_NAMES if len(name) < 20)
    lakes.opened(lake, plan_table(lake, table, Lane.FULL, NOW, force=True)[0])
    code, out, err = firn("stages", table)
    assert (code, err) == (0, "")
    assert all(letter.isprintable() or letter == "\n" for letter in out)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_c26_a_refusal_is_one_line_whatever_it_names(name: str) -> None:
    message = str(RefusedError(f"topic {name} is not there"))
    assert message.isprintable()
    assert isinstance(RefusedError(message), FirnError)


def test_a_person_who_is_asked_sees_names_as_text(lake: Lake, table: str) -> None:
    """Airflow shows Markdown: a topic must not be a link, a picture, or another row of the table."""
    append(lake, [row(offset, topic=name) for name in HOSTILE_NAMES for offset in range(2)])
    plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
    assert {plan.topic for plan in plans} == set(HOSTILE_NAMES)
    header, _, *rows = figures_of(lake, [Job(tuple(plans))]).splitlines()
    assert len(rows) == len(plans)
    for text in rows:
        bare = text.replace("\\\\", "")
        assert bare.replace("\\|", "").count("|") == header.count("|")
        assert not [at for at, letter in enumerate(bare) if letter in "<[]`*&" and bare[at - 1] != "\\"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_become_no_sql(name: str) -> None:
    inside = quoted(name)[1:-1]
    assert '"' not in inside.replace('""', "")


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_become_no_paths_nor_templates(tmp_path: Path, name: str) -> None:
    assert set("/\\<>&$\"'\n ") & set(plain(name)) == set()
    assert lease.take(tmp_path / "runs", name, "run", lambda _: True) is None
    assert {path.parent for path in tmp_path.rglob("*.lease")} == {tmp_path / "runs"}


@pytest.mark.parametrize("name", ["../../x", "a/b", "a\\b", "", "a\nb", "\x00", "\u202ex"])
def test_c26_a_table_can_not_be_called_so(lake: Lake, name: str) -> None:
    for identifier in (f"db.{name}", f"db.{name}.t"):
        with pytest.raises(RefusedError, match="allowed: "):
            records.create(lake, identifier, {})
    assert lake.all_tables() == []


@pytest.mark.parametrize("name", ["a.b.größe-1_x`y", "db.t__stage_x", "db._firn", "db.firn_quarantine"])
def test_any_other_name_will_do(name: str) -> None:
    check_name(name)


def test_folders_that_are_no_job_are_no_stage_and_stay(lake: Lake, table: str, firn: Firn) -> None:
    """Files of others beside Firn's documents stay untouched."""
    append(lake, [row(0), row(1)])
    stage = lakes.opened(lake, only_plan(lake))
    folder = on_disk(stage.documents.location).parent
    others = [folder / "notes.txt", folder / "0123456789ABCDEF" / f"plans-{'0' * 64}.json", folder / "x" / "plans.json"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_text("[]")
    code, out, err = firn("stages", table, "--json")
    assert (code, out.count('"stage"'), stage.identifier in out, err) == (0, 1, True, "")
    assert firn("sweep", table)[0] == 0
    assert firn("discard", stage.identifier)[0] == 0
    assert all(path.exists() for path in others)
