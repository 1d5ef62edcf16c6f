"""`samzapy dev consume`, with messages in the place of a topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from samzapy.adapters.kafka.console import TopicMessage
from samzapy.cli.dev import messages as command

SHORT = TopicMessage(key=b"a", value=b"1", partition=0, offset=0)
LONG = TopicMessage(key=b"customer-4711", value=b'{"amount": 12.5}', partition=0, offset=1)


def printed(monkeypatch: pytest.MonkeyPatch, messages: Iterator[TopicMessage], *options: str) -> list[str]:
    monkeypatch.setattr(command, "read_messages", lambda *_arguments, **_options: messages)
    arguments = ["orders", "--bootstrap-servers", "b:1", *options]
    return CliRunner().invoke(command.consume, arguments, catch_exceptions=False).output.splitlines()


def test_the_longest_cells_of_a_table_decide_its_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [
        "PARTITION  OFFSET  KEY            VALUE",
        "        0       0  a              1",
        '        0       1  customer-4711  {"amount": 12.5}',
    ] == printed(monkeypatch, iter([SHORT, LONG]), "-o", "table")


def test_a_table_without_messages_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ["0 messages"] == printed(monkeypatch, iter(()), "-o", "table")


def test_a_follower_prints_each_message_before_it_waits_for_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = list[str]()

    def following() -> Iterator[TopicMessage]:
        yield SHORT
        shown.append(capsys.readouterr().out)
        yield LONG

    monkeypatch.setattr(command, "read_messages", lambda *_arguments, **_options: following())
    command.consume.main(["orders", "--bootstrap-servers", "b:1", "--follow", "-o", "table"], standalone_mode=False)

    assert ["PARTITION  OFFSET  KEY  VALUE\n        0       0  a    1\n"] == shown


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_a_program_gets_a_line_for_each_message(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    assert 2 == len(printed(monkeypatch, iter([SHORT, LONG]), "-o", output))
    assert [] == printed(monkeypatch, iter(()), "-o", output)
