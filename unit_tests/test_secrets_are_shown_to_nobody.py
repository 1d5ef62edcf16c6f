"""Secrets in random configurations appear in none of the outputs.

The outputs are records, log lines, messages with all their causes, and the command that `samzapy run` becomes. They
are also the output of commands, and the answers of the coordinator over HTTP.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from samzapy.adapters.kafka.clients import KafkaConnection, make_client
from samzapy.adapters.maven import java
from samzapy.adapters.spark.java_properties import java_properties
from samzapy.adapters.web.routes import Answering
from samzapy.adapters.web.server import CoordinatorServer
from samzapy.cli import run
from samzapy.cli.config import config as config_command
from samzapy.cli.job.group import job as job_command
from samzapy.config import JobConfig
from samzapy.coordinator.lifecycle.submission import check_joinable
from samzapy.coordinator.replay import replay
from samzapy.errors import ConfigError, RejectedError, SamzapyError
from samzapy.runtime.job_config import read_config
from samzapy.stream.audit import as_json, history
from samzapy.testing.builders import a_config, a_heartbeat, a_submission, a_work_plan
from unit_tests.fixtures.coordinator_world import World

EXAMPLES = int(os.environ.get("SAMZAPY_SECRETS", "60"))
LINES = [
    "job.name=flights",
    "task.inputs=kafka.flights",
    "systems.kafka.bootstrap.servers=localhost:1",
    "systems.kafka.client.security.protocol=SASL_PLAINTEXT",
    "systems.kafka.client.sasl.mechanisms=PLAIN",
    "systems.kafka.client.sasl.username=ada",
]
TAKEN = [
    "ssl.key.password",
    "ssl.keystore.password",
    "basic.auth.user.info",
    "registry.Api-Key",
    "vault.token",
    "some.credential",
    "DB_PASSWD",
]
"""Beside `sasl.password`, which every client needs; the others are refused, since one of the clients has none."""
NAMES = ["sasl.password", *TAKEN, "ssl.key.pem", "sasl.jaas.config", "sasl.oauthbearer.config"]
# Settings for which a start refuses a configuration, with a secret near them.
MISTAKES = [
    "nonsense=1",
    "job.container.lost.ms=1",
    "job.id=a-b",
    "task.transaction.max.ms=5s",
    "systems.kafka.client.ssl.cipher.suites=X",
    "systems.kafka.client.ssl.key.location=/nowhere",
    "systems.kafka.client.acks=0",
    "stores.seen.msg.serde=avro",
    "=",
]

# Letters that survive a properties file, a URL and JSON, so that each spelling of it would be found.
planted = st.text("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", min_size=14, max_size=20).map("planted{}".format)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Sequence[str], Sequence[str], Sequence[str], Mapping[str, str]]:
    """Lines of a file, `--set`s, the secrets in both, and those in the environment.

    Every other example is as a start would take it.
    """
    secrets = draw(st.lists(planted, min_size=1, max_size=4, unique=True))
    is_good = draw(st.booleans())
    expected = len(secrets) - is_good
    names = draw(
        st.lists(st.sampled_from(TAKEN if is_good else NAMES), min_size=expected, max_size=expected, unique=True)
    )
    if is_good:
        names.insert(0, "sasl.password")
    in_file = draw(st.integers(0, len(secrets)))
    # Secrets on the command line itself are refused.
    variables = {
        f"PLANTED_{number}": secret
        for number, secret in enumerate(secrets)
        if draw(st.booleans()) or (is_good and number >= in_file)
    }
    texts = [f"${{env:PLANTED_{number}}}" for number in range(len(secrets))]
    given_ = [
        f"systems.kafka.client.{name}={text if secret in variables.values() else secret}"
        for name, text, secret in zip(names, texts, secrets, strict=True)
    ]
    lines, sets = [*LINES, *given_[:in_file]], given_[in_file:]
    if not is_good:
        lines.extend(draw(st.lists(st.sampled_from(MISTAKES), max_size=1)))
        match draw(st.integers(0, 4)):
            case 0:
                sets.append(f"sasl.password:{secrets[0]}")
            case 1:
                lines.append(f"={secrets[0]}")
            case 2:
                lines.append(lines[-1])
            case _:
                pass
    return draw(st.permutations(lines)), sets, secrets, variables


class Shown:
    """Everything that came out."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, str]] = []

    def add(self, place: str, text: object) -> None:
        self.parts.append((place, text.decode(errors="replace") if isinstance(text, bytes) else str(text)))

    def add_error(self, place: str, error: BaseException) -> None:
        self.add(place, "".join(traceback.format_exception(error)))
        self.add(place, repr(error))

    def check(self, secrets: Sequence[str]) -> None:
        places = {place for place, text in self.parts for secret in secrets if secret in text}
        assert not places, f"a secret is shown in: {', '.join(sorted(places))}"


class _Lines(logging.Handler):
    def __init__(self, shown: Shown) -> None:
        super().__init__(logging.DEBUG)
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        self._shown.add("log line", record.getMessage())
        self._shown.add("log line", record.args)


class Answers:
    """One HTTP server for all examples; `service` is its coordinator."""

    def __init__(self) -> None:
        self.service: Any = None
        self._clock = World().clock
        self._server = CoordinatorServer(
            host="127.0.0.1",
            port=0,
            answering=Answering(
                snapshot=lambda: None if self.service is None else self.service.status(),
                put=lambda heartbeat: False,
                clock=self._clock,
                lease_ms=10_000,
            ),
        )
        self._address = urlsplit(self._server.start()).netloc

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
        connection = HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def close(self) -> None:
        self._server.stop()


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    kept_answers = Answers()
    yield kept_answers
    kept_answers.close()


@pytest.fixture
def becomes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command of `samzapy run`."""
    became: list[str] = []
    monkeypatch.setattr(os, "execve", lambda program, command, environment: became.extend(command))
    monkeypatch.setattr(java, "find_java", lambda: None)
    return became


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=_cases())
def test_no_planted_secret_comes_out_of_anything(
    case: tuple[Sequence[str], Sequence[str], Sequence[str], Mapping[str, str]],
    tmp_path: Path,
    answers: Answers,
    becomes: list[str],
) -> None:
    lines, sets, secrets, variables = case
    shown, file = Shown(), tmp_path / "job.properties"
    before = len(becomes)
    file.write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "job.py").write_text("import samzapy\n\n@samzapy.task\ndef process(e, c, x):\n    pass\n")
    handler, root = _Lines(shown), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with patch.dict(os.environ, variables):
            _commands(file, sets, shown)
        try:
            config = read_config(file, file, sets, variables)
        except SamzapyError as error:
            event("refused")
            shown.add_error("refusal", error)
        else:
            event("taken")
            _run(config, answers, shown)
            # It was really there, and it reaches the client.
            assert all(secret in file.read_text() or secret in variables.values() for secret in secrets)
            planted = [value.reveal() for value in config.secrets.values()]
            assert sorted(planted) == sorted(secrets)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)

    shown.add("command of spark-submit", becomes[before:])
    shown.check(secrets)


def test_a_planted_secret_is_detected() -> None:
    shown = Shown()
    shown.add("a record", b"\x00value=plantedX")

    with pytest.raises(AssertionError, match="a record"):
        shown.check(["plantedX"])


def _commands(file: Path, sets: Sequence[str], shown: Shown) -> None:
    options = ["--config", str(file), *(part for item in sets for part in ("--set", item))]
    commands: Sequence[tuple[click.Command, Sequence[str]]] = [
        (config_command, ["explain", *options]),
        (config_command, ["explain", *options, "-o", "json"]),
        (config_command, ["explain", "systems.kafka.client.sasl.password", *options]),
        (config_command, ["check", *options]),
        (job_command, ["plan", *options, "--partitions", "kafka.flights=2"]),
        (job_command, ["plan", *options, "--partitions", "kafka.flights=2", "-o", "json"]),
        (run.run, [str(file.with_suffix(".py")), *options[2:], "--conf", f"spark.some.password={sets[0][-20:]}"])
        if sets
        else (run.run, [str(file.with_suffix(".py"))]),
    ]
    for command, arguments in commands:
        result = CliRunner().invoke(command, arguments)
        shown.add(f"output of {command.name} {arguments[0]}", result.output)
        if isinstance(result.exception, SamzapyError):
            shown.add_error(f"refusal of {command.name}", result.exception)
        elif isinstance(result.exception, Exception):
            raise result.exception


def _run(config: JobConfig, answers: Answers, shown: Shown) -> None:
    """A job under `config` from its submission to a refused second one."""
    shown.add("repr", repr(config))
    shown.add("fields", [asdict(replace(config))])
    shown.add("properties", json.dumps(dict(config.properties)))
    connection = KafkaConnection(bootstrap_servers="b:1", properties=config.client_properties("kafka"))
    shown.add("connection", repr(connection))
    shown.add("settings", connection.settings({}))
    shown.add("options", java_properties(connection.properties))
    shown.add("work plan", repr(replace(a_work_plan(), config=config)))
    world = World(config=config)
    answers.service = service = world.coordinator()
    service.become_leader()
    service.submit(a_submission(config=config))
    world.queue.append(a_heartbeat())
    service.run_once(0)
    other = a_config(task_inputs="kafka.flights", task_hang_timeout_ms="5")
    state = replay(world.log().read(), topic="t").state
    try:
        check_joinable(state, other, running=["e1"])  # type: ignore[list-item]
    except RejectedError as error:
        shown.add_error("second configuration", error)
    else:
        raise AssertionError("another configuration was let in")
    for record in world.log().read():
        shown.add("record key", record.key)
        shown.add("record value", record.value)
        shown.add("record headers", record.headers)
    for entry in history(world.log().read(), topic="t"):
        shown.add("history", json.dumps(as_json(entry)))
    assert any(b"***" in (record.value or b"") for record in world.log().read()), "secrets are recorded as ***"
    results = [
        answers.ask("GET", "/status"),
        answers.ask("GET", "/jobModel"),
        answers.ask("GET", "/containerHeartbeat?executionContainerId=e1"),
        answers.ask("POST", "/containerHeartbeat", "{}"),
        answers.ask("GET", "/nothing"),
    ]
    assert [200, 200, 200, 400, 404] == [status for status, _ in results]
    for _, body in results:
        shown.add("answer", body)


@pytest.mark.parametrize(
    "name", ["ssl.key.pem", "ssl.certificate.pem", "sasl.password", "no.such.password", "ssl.ca.pem"]
)
def test_an_error_of_librdkafka_shows_no_secret(name: str) -> None:
    properties = a_config(**{f"systems_kafka_client_{name.replace('.', '_')}": "plantedX"}).client_properties("kafka")
    others = {"security.protocol": "ssl", "ssl.key.password": "plantedY"}
    connection = KafkaConnection(bootstrap_servers="b:1", properties={**properties, **others})

    try:
        make_client(Consumer, connection.settings({"group.id": "x"})).close()
    except ConfigError as error:
        shown = "".join(traceback.format_exception(error))
        assert "plantedX" not in shown or name not in ("ssl.key.pem", "sasl.password", "no.such.password")
