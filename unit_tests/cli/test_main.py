from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Sequence

import click
import pytest
from click.testing import CliRunner

from samzapy.cli.main import COMMANDS, main, samzapy
from samzapy.cli.output.groups import LazyCommand, LazyGroup
from samzapy.errors import RejectedError
from samzapy.version import __version__


@click.command()
def refuse() -> None:
    raise RejectedError("Wanted an idle job, found one that runs: stop it first.")


@click.command()
def break_down() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_listed_command_can_be_loaded(name: str) -> None:
    command = samzapy.get_command(click.Context(samzapy), name)

    assert command is not None
    assert name == command.name


def test_the_version_is_shown() -> None:
    shown = CliRunner().invoke(samzapy, ["--version"])

    assert (0, f"samzapy {__version__}\n") == (shown.exit_code, shown.output)


def test_help_lists_the_commands_without_importing_one() -> None:
    listing = (
        "import sys; from samzapy.cli.main import samzapy;"
        "samzapy.main(['--help'], standalone_mode=False);"
        "sys.exit(' '.join(m for m in sys.modules if m in {'samzapy.cli.dev', 'pyspark', 'confluent_kafka'}))"
    )

    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True)

    assert "" == ran.stderr.strip()
    assert all(name in ran.stdout for name in COMMANDS)


def test_an_error_of_ours_is_one_message_and_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(samzapy, "_table", {"refuse": LazyCommand(f"{__name__}:refuse", "")})

    with pytest.raises(SystemExit) as ended:
        main(["refuse"])

    assert 3 == ended.value.code
    assert "samzapy: Wanted an idle job, found one that runs: stop it first.\n" == capsys.readouterr().err


def test_control_codes_of_a_topic_do_not_reach_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def refuse() -> None:
        raise RejectedError("wanted two lines,\nfound \x1b]0;another title\x07")

    monkeypatch.setattr(samzapy, "get_command", lambda *_: refuse)

    with pytest.raises(SystemExit):
        main(["refuse"])

    assert "samzapy: wanted two lines,\nfound \\x1b]0;another title\\x07\n" == capsys.readouterr().err


def test_an_unexpected_error_is_raised_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samzapy, "_table", {"break": LazyCommand(f"{__name__}:break_down", "")})

    with pytest.raises(ZeroDivisionError):
        main(["break"])


def test_a_full_disk_is_no_fault_of_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")

    monkeypatch.setattr(samzapy, "get_command", lambda *_: fill)

    with pytest.raises(SystemExit) as ended:
        main(["fill"])

    assert 1 == ended.value.code
    assert "samzapy: wanted to use /data/x, found: No space left on device" in capsys.readouterr().err


def test_an_unknown_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fly"])

    assert 2 == ended.value.code
    assert "No such command 'fly'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("jb", "`samzapy job`"),
        ("status", "`samzapy container status` or `samzapy dev status` or `samzapy job status`"),
        ("rewnd", "`samzapy job rewind`"),
        ("job stats", "`samzapy job status`"),
        ("container lst", "`samzapy container list`"),
        ("job replay", "`samzapy stream replay`"),
    ],
)
def test_a_mistyped_command_gets_a_hint_across_levels(
    typed: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed.split())

    assert 2 == ended.value.code
    assert hint in capsys.readouterr().err


SERVERS = ("starlette", "uvicorn", "jinja2", "prometheus_client")
ENGINES = ("pyspark", "pyarrow", "pandas", "lmdb")


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("profile list", (*SERVERS, *ENGINES, "confluent_kafka")),
        ("completion", (*SERVERS, *ENGINES, "confluent_kafka")),
        ("job list", (*SERVERS, *ENGINES, "rich", "samzapy.cli.job.submit")),
        ("job status", (*SERVERS, *ENGINES, "rich", "samzapy.cli.job.submit")),
        ("job stop", (*SERVERS, *ENGINES, "rich", "samzapy.cli.job.submit")),
        ("container list", (*SERVERS, *ENGINES, "rich")),
        ("checkpoint list", (*SERVERS, *ENGINES, "rich")),
        ("stream replay", (*SERVERS, *ENGINES, "rich")),
        ("config explain", (*SERVERS, *ENGINES, "rich")),
        ("state get", (*SERVERS, *ENGINES, "rich")),
        ("acl", (*SERVERS, *ENGINES, "rich")),
    ],
)
def test_a_command_imports_the_modules_that_it_needs_and_no_more(command: str, without: Sequence[str]) -> None:
    """Imports are counted: on a shared machine the time of a start proves little."""
    listing = (
        "import sys; from samzapy.cli.main import main\n"
        f"try: main({[*command.split(), '--help']!r})\n"
        f"except SystemExit: sys.stderr.write(' '.join(m for m in {tuple(without)!r} if m in sys.modules))"
    )

    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True)

    assert "" == ran.stderr.strip()
    assert "Usage: samzapy" in ran.stdout


def test_a_group_lists_its_commands_in_order() -> None:
    group = LazyGroup(name="g", help="", table={"b": LazyCommand("x:b", "second"), "a": LazyCommand("x:a", "first")})

    assert ["a", "b"] == group.list_commands(click.Context(group))
