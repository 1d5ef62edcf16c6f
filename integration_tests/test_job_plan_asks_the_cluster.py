"""`samzapy job plan` on a broker: counts, the recorded plan, state to restore."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.cli.job.group import job as job_command
from samzapy.coordinator.assignment.liveness import Liveness
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.lifecycle.submission import start_term, submit_job
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.errors import MissingTopicError
from samzapy.model.container import TaskLocality, coordinator_transactional_id
from samzapy.model.job import ProcessorId
from samzapy.model.topics import changelog_spec, changelog_topic, coordinator_spec, coordinator_topic
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import Write
from samzapy.stream.records import TaskLocalityPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.builders import a_config, a_submission
from samzapy.testing.topics import make_topics
from unit_tests.fixtures.coordinator_histories import a_term


def test_a_plan_is_made_from_the_records_of_the_cluster(broker: DevBroker, tmp_path: Path) -> None:
    name = f"plan{uuid.uuid4().hex[:8]}"
    properties = {
        "job.name": name,
        "task.inputs": f"kafka.in-{name}",
        "systems.kafka.bootstrap.servers": broker.bootstrap_servers,
        "stores.seen.msg.serde": "json",
        "local.store.dir": str(tmp_path),
    }
    config = a_config(**{key.replace("_", "__").replace(".", "_"): value for key, value in properties.items()})
    file = tmp_path / "job.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    with pytest.raises(MissingTopicError, match=f"in-{name}"):
        _ = planned(file, "--processors", "0")
    make_topics(broker.bootstrap_servers, {f"in-{name}": 2})
    first = planned(file, "--processors", "0")
    assert (0, 2, 0) == (first["fromGeneration"], first["totals"]["new"], first["totals"]["restoreBytesAbout"])
    # The last letter of the topic's name left to a pattern.
    by_pattern = planned(file, "--set", f"task.inputs=kafka.~in-{name[:-1]}[0-9a-f]")
    assert first["tasks"] == by_pattern["tasks"]

    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    for spec in (coordinator_spec(config.job), changelog_spec(config.job, "seen", 2)):
        KafkaAdmin(connection).ensure_topic(spec)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(300):
        producer.produce(changelog_topic(config.job, "seen"), b"x" * 90, f"{number:010d}", partition=1)
    assert 0 == producer.flush(30)
    submission = a_submission(config=config, partition_counts={config.inputs[0]: 2})
    task = "SystemStreamPartition_kafka.in-{}.{}".format
    kept = TaskLocality(task_name=task(name, 0), processor_id="0", host="host-a")
    term = start_term(replace(a_term(0), job_name=name), INITIAL)
    log = KafkaLog(connection, coordinator_topic(config.job), coordinator_transactional_id(config.job))
    log.take_over()
    submitted = submit_job(submission, INITIAL, Liveness())
    state = evolve(INITIAL, committed(submitted, 0))
    records = [*term, *submitted, *replan(state, (ProcessorId("0"),)), TaskLocalityPut(locality=kept)]
    log.append_atomically(
        [
            Write(key=key, value=value, headers=headers(term=1, seq=seq, event="e", cause="c", actor="a"))
            for seq, (key, value) in enumerate(map(encode, records))
        ]
    )
    log.close()

    second = planned(file, "--processors", "1@host-a,2@host-b")

    moves = [(row["from"], row["to"], row["restoreRecordsMax"], row["restoreBytesAbout"]) for row in second["tasks"]]
    assert [("0", "1", 0, 0), ("0", "2", 300, 300 * 100)] == moves
    assert (1, 2) == (second["fromGeneration"], second["jobModel"]["generation"])


def test_keys_of_several_tasks_are_reported(broker: DevBroker, tmp_path: Path) -> None:
    topic = f"spread{uuid.uuid4().hex[:8]}"
    properties = {
        "job.name": topic,
        "task.inputs": f"kafka.{topic}",
        "systems.kafka.bootstrap.servers": broker.bootstrap_servers,
        "stores.seen.msg.serde": "json",
        "local.store.dir": str(tmp_path),
    }
    file = tmp_path / "job.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    make_topics(broker.bootstrap_servers, {topic: 3})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    # Before the last three records of its partition, where a sample of three does not look.
    producer.produce(topic, b"v", b"long ago", partition=0)
    producer.produce(topic, b"v", b"long ago", partition=2)
    for number in range(3):
        producer.produce(topic, b"v", f"own-{number}", partition=0)
        producer.produce(topic, b"v", b"spread", partition=2 * (number % 2))
        producer.produce(topic, b"v", None, partition=1)
    assert 0 == producer.flush(30)

    plan = planned(file, "--processors", "0", "--sample", "3")
    assert [
        {"stream": f"kafka.{topic}", "keyCount": 1, "examples": [{"key": "spread", "partitions": [0, 2]}]}
    ] == plan["spreadKeys"]
    assert 2 == planned(file, "--processors", "0")["spreadKeys"][0]["keyCount"]
    assert [] == planned(file, "--processors", "0", "--sample", "0")["spreadKeys"]
    table = CliRunner().invoke(job_command, ["plan", "--config", str(file), "--processors", "0", "--sample", "3"])
    assert f"warning: 1 of the sampled keys of kafka.{topic}" in table.stdout
    assert "(spread in 0, 2)" in table.stdout


def planned(file: Path, *options: str) -> dict:
    result = CliRunner().invoke(job_command, ["plan", "--config", str(file), "-o", "json", *options])
    if result.exception is not None:
        raise result.exception
    plan: dict = json.loads(result.stdout)
    return plan


def test_a_plan_shows_the_topics_of_intermediate_streams_that_it_makes(broker: DevBroker, tmp_path: Path) -> None:
    name = f"plan{uuid.uuid4().hex[:8]}"
    make_topics(broker.bootstrap_servers, {f"in-{name}": 2})
    topic = f"__samzapy-intermediate-{name}-1-again"
    file = tmp_path / "job.properties"
    file.write_text(
        f"job.name={name}\ntask.inputs=kafka.in-{name}\ntask.intermediate.again.partitions=3\n"
        f"systems.kafka.bootstrap.servers={broker.bootstrap_servers}\n"
        # Keys of several tasks are searched; a missing topic has none.
        f"stores.seen.msg.serde=json\nlocal.store.dir={tmp_path}\n"
    )

    first = planned(file, "--processors", "0")
    assert ([{"topic": topic, "from": 0, "to": 3}], 2 + 3) == (first["topics"], first["totals"]["new"])
    make_topics(broker.bootstrap_servers, {topic: 3})

    assert [] == planned(file, "--processors", "0")["topics"]
    grown = planned(file, "--processors", "0", "--set", "task.intermediate.again.partitions=6")
    assert [{"topic": topic, "from": 3, "to": 6}] == grown["topics"]
