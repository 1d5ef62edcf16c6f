from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

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


MAIN = "from samzapy.cli.main import main; main()"


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_dev_null(closed: str) -> None:
    shown = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -c "$1" profile list {closed}', sys.executable, MAIN], capture_output=True, text=True
    )

    assert 0 == shown.returncode
    assert "Traceback" not in shown.stderr


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
LEADERS = ("samzapy.coordinator.commands", "samzapy.container.ports", "samzapy.container.task.work_plan")
"""Many dataclasses, which Python compiles at each start. A command that reads a stream needs none of them."""


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("profile list", (*SERVERS, *ENGINES, "confluent_kafka")),
        ("completion", (*SERVERS, *ENGINES, "confluent_kafka")),
        ("job list", (*SERVERS, *ENGINES, "multiprocessing", "rich", "samzapy.cli.job.submit")),
        ("job status", (*SERVERS, *ENGINES, *LEADERS, "rich", "samzapy.cli.job.submit")),
        ("job stop", (*SERVERS, *ENGINES, "rich", "samzapy.cli.job.submit")),
        ("container list", (*SERVERS, *ENGINES, *LEADERS, "rich", "http.client")),
        ("checkpoint list", (*SERVERS, *ENGINES, "rich")),
        ("stream replay", (*SERVERS, *ENGINES, *LEADERS, "rich", "http.client")),
        ("stream verify", (*SERVERS, *ENGINES, *LEADERS, "rich", "http.client")),
        ("task explain", (*SERVERS, *ENGINES, *LEADERS, "rich", "http.client")),
        ("config explain", (*SERVERS, *ENGINES, "rich")),
        ("job submit", (*SERVERS, *ENGINES, "rich")),
        ("job delete", (*SERVERS, *ENGINES, "rich")),
        ("job downgrade", (*SERVERS, *ENGINES, "rich")),
        ("doctor", (*SERVERS, *ENGINES, "rich", "multiprocessing", "samzapy.coordinator.service")),
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


@pytest.mark.parametrize(
    "module", ["cli.target.status", "cli.target.requests", "cli.stream.history", "cli.stream.task_explanation"]
)
def test_a_command_that_reads_a_stream_loads_neither_commands_of_a_leader_nor_http(module: str) -> None:
    """Also when it runs: the help of a command does not load these modules."""
    listing = f"import sys, samzapy.{module}; print(*(m for m in {(*LEADERS, 'http.client')!r} if m in sys.modules))"

    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)

    assert "" == ran.stdout.strip()


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("cli.doctor.examination", (*SERVERS, *ENGINES, "rich", "multiprocessing", "samzapy.coordinator.service")),
        ("cli.job.downgrading", (*SERVERS, *ENGINES, "rich")),
        ("cli.job.planning", (*SERVERS, *ENGINES, "rich")),
        ("cli.job.submission", (*SERVERS, *ENGINES, "rich")),
    ],
)
def test_the_work_of_a_command_imports_the_modules_that_it_needs_and_no_more(
    module: str, without: Sequence[str]
) -> None:
    listing = f"import sys, samzapy.{module}; print(*(m for m in {tuple(without)!r} if m in sys.modules))"

    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)

    assert "" == ran.stdout.strip()


def test_the_end_of_a_command_looks_for_no_garbage() -> None:
    listing = (
        "import atexit, gc, sys; from samzapy.cli.main import main\n"
        "atexit.register(lambda: sys.stderr.write(str(len(gc.get_objects()))))  # It runs last.\n"
        "main(['--version'])"
    )

    ran = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True)

    assert int(ran.stderr) < 1000


HEAVY = (
    *SERVERS,
    *ENGINES,
    "asyncio",
    "confluent_kafka",
    "cryptography",
    "email",
    "fastavro",
    "http",
    "hypothesis",
    "importlib.metadata",
    "msgspec",
    "multiprocessing",
    "rich",
    "ssl",
    "tenacity",
    "samzapy.adapters.kafka",
    "samzapy.coordinator",
    "samzapy.stream",
)
"""Modules that a command does not need if it asks no cluster."""


def loaded_by(
    *command: str, environment: Mapping[str, str] = MappingProxyType({}), heavy: Sequence[str] = HEAVY
) -> tuple[str, set[str]]:
    """What a command prints, and which of the heavy modules it imports."""
    listing = (
        "import sys; from samzapy.cli.main import main\n"
        f"try: main({[*command]!r})\n"
        f"except SystemExit: sys.stderr.write(' '.join(m for m in {heavy!r} if m in sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, env={**os.environ, **environment}
    )
    return ran.stdout, set(ran.stderr.split())


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("--version", __version__),
        ("--help", "Usage: samzapy"),
        ("job --help", "Usage: samzapy job"),
        ("job status --help", "Usage: samzapy job status"),
        ("config --help", "Usage: samzapy config"),
        ("config check --help", "Usage: samzapy config check"),
        ("config explain job.name", "job.name"),
        ("profile --help", "Usage: samzapy profile"),
        ("run --help", "Usage: samzapy run"),
        ("completion bash", "_SAMZAPY_COMPLETE=bash_complete"),
    ],
)
def test_a_command_that_asks_no_cluster_loads_no_heavy_module(command: str, shown: str) -> None:
    output, heavy = loaded_by(*command.split())

    assert shown in output
    assert set() == heavy


CLIENTS = ("confluent_kafka", "fastavro", "samzapy.coordinator.state", "samzapy.stream.codec")


@pytest.mark.parametrize(
    "command",
    [
        *(
            "job delete",
            "job describe",
            "job downgrade",
            "job list",
            "job plan",
            "job reset",
            "job restart",
            "job rewind",
            "job scale",
            "job status",
            "job stop",
            "job submit",
            "job token",
            "job top",
            "acl",
            "acl check",
            "state count",
            "state drop",
            "state get",
            "state scan",
        ),
        *("container gc", "container list", "container logs", "container place", "container restart"),
        *("container standby", "container status", "config check", "config explain", "profile list"),
        *("checkpoint", "checkpoint list", "doctor", "task", "task explain"),
        *("stream diff", "stream export", "stream replay", "stream state", "stream verify"),
    ],
)
def test_the_help_of_a_command_loads_no_client_and_no_state(command: str) -> None:
    """Only `samzapy dev` does; `docs/internals/performance.md` has the price of each."""
    _, loaded = loaded_by(*command.split(), "--help", heavy=CLIENTS)

    assert set() == loaded


def test_the_check_of_a_configuration_loads_no_client(tmp_path: Path) -> None:
    properties = tmp_path / "flights.properties"
    properties.write_text(
        "job.name=flights\ntask.inputs=kafka.flights\nsystems.kafka.bootstrap.servers=localhost:9092\n"
    )

    output, heavy = loaded_by("config", "check", "--config", str(properties))

    assert "nothing is wrong with them" in output
    assert set() == heavy


@pytest.mark.parametrize(
    ("typed", "completion"),
    [
        ("samzapy j", "plain,job"),
        ("samzapy job stat", "plain,status"),
        ("samzapy job status --conf", "plain,--config"),
        ("samzapy config ch", "plain,check"),
    ],
)
def test_a_shell_completes_commands_and_options_without_a_heavy_module(typed: str, completion: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}

    output, heavy = loaded_by(environment={"_SAMZAPY_COMPLETE": "bash_complete", **words})

    assert completion in output.split()
    assert set() == heavy


def test_a_shell_gets_the_summaries_of_commands_without_importing_one() -> None:
    table = {"job": LazyCommand("no.such.module:job", "Manage a job.")}
    group = LazyGroup(name="samzapy", help="", table=table)

    items = [(item.value, item.help) for item in group.shell_complete(click.Context(group), "j")]

    assert [("job", "Manage a job.")] == items


def test_a_group_lists_its_commands_in_order() -> None:
    group = LazyGroup(name="g", help="", table={"b": LazyCommand("x:b", "second"), "a": LazyCommand("x:a", "first")})

    assert ["a", "b"] == group.list_commands(click.Context(group))
