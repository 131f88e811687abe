"""Tables on a terminal, in a pipe and in a log: nothing is cut, and nothing is wider than the terminal."""

import pytest
import typer

from firnlake.cli import show
from firnlake.cli.show import Size
from firnlake.errors import RefusedError

LONG = "Z" * 249 + "-0"
WHY = "dirty ratio 1.000 > 0.5 and the oldest dirty record has waited long"
ROWS = (
    ("orders-0", 0, 12_345_678, Size(123_456_789_012), None, WHY),
    (LONG, 3, 1, Size(1), 5, "none"),
)
HEADINGS = ("topic partition", "level", "records", "bytes", "tombstones", "why")


def table(capsys: pytest.CaptureFixture[str], *rows: tuple[object, ...]) -> list[str]:
    show.table("shop.orders", HEADINGS, rows, {"tombstones": "not known"})
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_table_fits_and_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = table(capsys, *ROWS)
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    assert {"orders-0", "12,345,678"} <= set(words)
    assert "".join(lines).count("Z") == 249
    assert set(WHY.split()) <= set(words)
    assert lines[-1] == "tombstones –: not known"


def test_columns_that_do_not_fit_become_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert table(capsys, ROWS[0]) == [
        "shop.orders",
        "topic partition  orders-0",
        "level            0",
        "records          12,345,678",
        "bytes            123.5 GB",
        "tombstones       –",
        "why              dirty ratio 1.000 > 0.5 and the",
        "                 oldest dirty record has waited",
        "                 long",
        "",
        "tombstones –: not known",
    ]


def test_a_pipe_has_a_line_per_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    _, _, first, second, _ = table(capsys, *ROWS)
    assert first.startswith("orders-0 ")
    assert first.endswith(f" –  {WHY}")
    assert second == f"{LONG}      3           1       1 B           5  none"


REFUSED = "orders-0 full: offset 1 differs; allowed: one; the records are in s3://b/a b.parquet; to delete one: DELETE"


def test_a_message_breaks_at_its_clauses_on_a_narrow_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show.message(f"  {REFUSED}")
    show.message("it fits; so it stays")
    show.error(REFUSED)
    printed = capsys.readouterr()
    first, *rest = REFUSED.split("; ")
    assert printed.out.splitlines() == [f"  {first}", *(f"    {one}" for one in rest), "it fits; so it stays"]
    assert printed.err.splitlines() == [f"firn: {first}", *(f"  {one}" for one in rest)]
    monkeypatch.delenv("COLUMNS")
    show.message(REFUSED)
    show.error(REFUSED)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (f"{REFUSED}\n", f"firn: {REFUSED}\n")


def test_a_failure_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        show.end([RefusedError("torn"), "torn", RefusedError("lost")])
    assert capsys.readouterr().err == "firn: torn\nfirn: lost\n"


def test_a_list_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    show.table("shop.orders: plans", HEADINGS, ())
    show.more("shop.orders", 3, 3, "plan")
    show.more("shop.orders", 4, 3, "plan")
    assert capsys.readouterr().out.splitlines() == [
        "shop.orders: plans: none",
        "shop.orders: 1 more plan; --limit shows more, --json shows all",
    ]


def test_a_long_text_makes_room_for_a_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ("table", "topic partitions", "segments", "bytes", "dirtiest", "state")
    show.table(
        "", columns, [("analytics.customer_orders", 1500, 1500, Size(3_700_000), 1.0, "1 blocked, 1,499 due (full)")]
    )
    assert capsys.readouterr().out.splitlines() == [
        "                                topic",
        "table                      partitions  segments   bytes  dirtiest  state",
        "analytics.customer_orders       1,500     1,500  3.7 MB     1.000  1 blocked,",
        "                                                                   1,499 due",
        "                                                                   (full)",
    ]
