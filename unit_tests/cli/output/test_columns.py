"""Tables as they come out of a pipe."""

from __future__ import annotations

import types
from collections.abc import Sequence

import click
import pytest

from samzapy.cli.job import status
from samzapy.cli.output import columns, findings
from samzapy.cli.output.columns import Columns
from samzapy.cli.output.table import print_rows
from samzapy.cli.output.terminal import Terminal, takes_colours, terminal
from samzapy.model.finding import Finding

LONG = "x" * 2000


def test_a_cell_is_never_cut_or_folded(capsys: pytest.CaptureFixture[str]) -> None:
    Columns(("name", "reason")).write([("a", LONG), (LONG, "b")])

    assert ["NAME  REASON", f"a     {LONG}", f"{LONG}  b"] == capsys.readouterr().out.splitlines()


def test_a_long_cell_puts_no_blanks_into_other_rows(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "y" * columns._PADDED_MAX

    Columns(("name", "found", "end")).write([("a", LONG, "1"), ("b", "short", "2"), ("c", wide, "3")])

    lines = capsys.readouterr().out.splitlines()
    assert f"a     {LONG}  1" == lines[1]
    assert f"b     {'short'.ljust(columns._PADDED_MAX)}  2" == lines[2]
    assert lines[2].index("2") == lines[3].index("3") == lines[0].index("END")


def test_the_last_column_is_not_padded(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "reason": LONG}, {"name": "b", "reason": None}], ("name", "reason"))

    lines = capsys.readouterr().out.splitlines()
    assert ["name  reason", f"a     {LONG}", "b     -"] == lines


def test_numbers_are_aligned_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "lag": 5}, {"name": "b", "lag": 12345}], ("name", "lag"), numbers=("lag",))

    assert ["name    lag", "a         5", "b     12345"] == capsys.readouterr().out.splitlines()


def test_findings_of_doctor_are_whole_and_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    short = Finding(code="cluster-unreachable", subject="cluster", found="no answer", remedy="start it")
    long = Finding(code="cluster-unreachable", subject="cluster", found=LONG, remedy=LONG)

    findings._print([short, long], [])

    _, first, second = capsys.readouterr().out.splitlines()
    assert len(first) < 200 and first.endswith("start it")
    assert second.endswith(f"{LONG}  {LONG}")


@pytest.mark.parametrize(
    ("on", "text", "is_cut"),
    [
        (Terminal(width=80), LONG, True),
        (Terminal(width=80), "ok", False),
        (Terminal(), LONG, False),
    ],
    ids=["a narrow terminal", "a terminal with room", "a pipe"],
)
def test_findings_that_are_cut_to_the_terminal_name_the_option_that_shows_all(
    on: Terminal, text: str, is_cut: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "terminal", lambda: on)
    finding = Finding(code="clock-skew", subject="host h", found="far", remedy=text)

    findings._print([finding], ["the keys of inputs"])

    last = capsys.readouterr().out.splitlines()[-1]
    assert ("-o wide" in last, len(last) <= 80) == (is_cut, True)


def test_the_status_of_a_job_is_whole_and_not_spread(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"processorId": "0", "executionId": "c-0", "host": "h", "pid": 7, "phase": "RUNNING", "reason": LONG},
        {"processorId": "1", "executionId": "c-1", "host": "h", "pid": 8, "phase": "RUNNING", "reason": ""},
    ]
    positions = [{"ssp": f"kafka.orders.{number}", "offsetNext": number} for number in range(200)]
    tasks = [
        {"task": "Partition 0", "processorId": "0", "owner": "c-0", "epoch": 1, "positions": positions, "lag": 3},
        {"task": "Partition 1", "processorId": "1", "owner": "c-1", "epoch": 2, "positions": [], "lag": 4},
    ]

    status._print({"job": "orders-1", "containers": rows, "tasks": tasks})

    lines = capsys.readouterr().out.splitlines()
    assert 7 == len(lines) and lines[2].endswith(LONG)
    assert not [line for line in lines if line != line.rstrip()]
    assert all("  " * 50 not in line for line in lines)


TERMINAL = Terminal(width=40)
IDS_ALIKE = ["4f1c2d3e-0000-1111", "4f1c2d3e-0001-2222", "aa1c2d3e-0001-2222"]


def lines(names: Sequence[str], rows: Sequence[Sequence[str]], on: Terminal = TERMINAL) -> list[str]:
    return [*Columns(names, on=on).lines(rows)]


def test_on_a_terminal_the_widest_columns_give_way() -> None:
    shown = lines(("name", "reason", "remedy"), [("a", LONG, "b" * 30), (LONG, "c", "d")])

    assert all(len(line) <= 40 for line in shown)
    assert shown[1].split()[1].endswith("…") and shown[1].startswith("a ")


def test_a_text_that_fits_the_terminal_is_not_cut() -> None:
    assert ["NAME  REASON", "a     " + "b" * 34] == lines(("name", "reason"), [("a", "b" * 34)])


def test_a_later_row_takes_the_room_that_the_terminal_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Columns(("offset", "key", "value"), right=("offset",), on=Terminal(width=40))

    shown.write([("0", "a", "1")])
    shown.write([("1", "customer-4711", '{"amount": 1}')])
    shown.write([("2", "customer-4711", "b" * 40)])
    shown.write([("3", LONG, "c")])
    shown.write([("4", "d", "2")])

    assert [
        "OFFSET  KEY  VALUE",
        "     0  a    1",
        '     1  customer-4711  {"amount": 1}',
        f"     2  customer-4711  {'b' * 16}…",
        f"     3  {'x' * 24}…  c",
        "     4  d    2",
    ] == capsys.readouterr().out.splitlines()


def test_ids_on_a_terminal_are_cut_to_the_shortest_unique_length() -> None:
    shown = lines(("container", "host"), [(text, "h") for text in IDS_ALIKE])

    assert ["4f1c2d3e-000", "4f1c2d3e-000", "aa1c2d3e-000"] != [line.split()[0] for line in shown[1:]]
    assert ["4f1c2d3e-0000", "4f1c2d3e-0001", "aa1c2d3e-0001"] == [line.split()[0] for line in shown[1:]]
    assert 8 == columns.unique_length(["4f1c2d3e-0000", "bb"])


def test_ids_are_whole_in_a_pipe() -> None:
    shown = lines(("container", "host"), [(text, "h") for text in IDS_ALIKE], Terminal())

    assert IDS_ALIKE == [line.split()[0] for line in shown[1:]]


def test_a_state_has_a_colour_on_a_terminal_only() -> None:
    coloured = lines(("state", "host"), [("LOST", "RUNNING")], Terminal(width=40, is_coloured=True))

    assert "\x1b[31mLOST \x1b[0m  RUNNING" == coloured[1]
    assert "LOST   RUNNING" == lines(("state", "host"), [("LOST", "RUNNING")])[1]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_the_user_turns_colours_off(environment: dict[str, str], expected: bool) -> None:
    assert expected is takes_colours(environment)


def test_a_table_without_rows_prints_that_once(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Columns(("name",), nothing="0 records")
    empty.write([])
    empty.write([("a",)])

    assert ["0 records", "NAME", "a"] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("output", "width"), [("table", 80), ("wide", None)])
def test_wide_cuts_nothing_on_a_terminal(output: str, width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout", types.SimpleNamespace(isatty=lambda: True))
    context = click.Context(click.Command("c"))
    context.params["output"] = output

    with context:
        assert width == terminal().width
