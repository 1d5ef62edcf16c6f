"""Kafka's console producer and consumer, and its tools for ACLs and groups."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

from samzapy.adapters.installed_spark import pyspark_jar
from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import KAFKA_BROKER, KAFKA_TOOLS

SEPARATOR = "|"
_LOGGING_JARS = ("slf4j-api", "log4j-slf4j2-impl", "log4j-core", "log4j-api")
_WAITS_S = 240.0


def produce(bootstrap_servers: str, topic: str, lines: Iterable[str]) -> None:
    """Write records, one for each line, key and value with a `|` between."""
    options = ["--bootstrap-server", bootstrap_servers, "--topic", topic]
    keyed = ["--property", "parse.key=true", "--property", f"key.separator={SEPARATOR}"]
    text = "".join(f"{line}\n" for line in lines)
    command = _command("org.apache.kafka.tools.ConsoleProducer", [*options, *keyed])
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_WAITS_S)
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def consume(bootstrap_servers: str, topic: str, until: Callable[[Mapping[str, str]], bool]) -> dict[str, str]:
    """The last value of each key that the console consumer prints."""
    options = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
    keyed = ["--property", "print.key=true", "--property", f"key.separator={SEPARATOR}"]
    command = _command("org.apache.kafka.tools.consumer.ConsoleConsumer", [*options, *keyed])
    messages: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as consumer:
        end = threading.Timer(_WAITS_S, consumer.kill)
        end.start()
        try:
            assert consumer.stdout is not None
            for line in consumer.stdout:
                key, separator, value = line.rstrip("\n").partition(SEPARATOR)
                if separator:
                    messages[key] = value
                if until(messages):
                    return messages
        finally:
            end.cancel()
            consumer.kill()
    raise AssertionError(f"not enough within {_WAITS_S} s: {messages}")


def set_acls(commands: Iterable[str]) -> None:
    """Run shell lines that call `kafka-acls.sh` in one JVM, which saves seconds each."""
    calls = []
    for command in commands:
        tool, *arguments = shlex.split(command)
        assert "kafka-acls.sh" == tool, command
        calls.append("\n".join(arguments))
    program = str(Path(__file__).with_name("AclCommands.java"))
    ran = subprocess.run(_command(program, calls), capture_output=True, text=True, timeout=_WAITS_S)
    assert 0 == ran.returncode, ran.stdout + ran.stderr


def group_lag(bootstrap_servers: str, group: str) -> dict[tuple[str, int], int]:
    """The lag in the tool for consumer groups, by partition; empty without the group."""
    options = ["--bootstrap-server", bootstrap_servers, "--describe", "--group", group]
    command = _command("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", options)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_WAITS_S)
    rows = [line.split() for line in ran.stdout.splitlines()]
    heading = next((row for row in rows if "LAG" in row), [])
    shown = [dict(zip(heading, row, strict=False)) for row in rows if heading and row[:1] == [group]]
    return {(row["TOPIC"], int(row["PARTITION"])): int(row["LAG"]) for row in shown if row["LAG"].isdigit()}


def _command(program: str, arguments: list[str]) -> list[str]:
    return [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-cp", _class_path(), program, *arguments]


@cache
def _class_path() -> str:
    return ":".join(map(str, (*map(pyspark_jar, _LOGGING_JARS), *jar_paths(KAFKA_BROKER), *jar_paths(KAFKA_TOOLS))))
