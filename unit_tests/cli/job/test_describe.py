"""`samzapy job describe`: the contents of its screen."""

from __future__ import annotations

import pytest

from samzapy.cli.job import describe
from samzapy.config import recorded_properties
from samzapy.coordinator.state import INITIAL, committed, evolve
from samzapy.model.topics import changelog_topic
from samzapy.stream.records import ConfigPut, OwnTopicPut, RunPut
from samzapy.testing.builders import a_config

CONFIG = a_config(
    task_inputs="kafka.flights",
    stores_seen_key_serde="string",
    stores_seen_msg_serde="string",
    local_store_dir="/data",
)
TOPIC = changelog_topic(CONFIG.job, "seen")
SETTINGS = [ConfigPut(config_key=key, value=value) for key, value in recorded_properties(CONFIG).items()]
OWN = OwnTopicPut(name=TOPIC, topic_id="id", partition_count=4)
STATUS = {
    "job": CONFIG.job,
    "containers": [{"executionId": "e1", "processorId": "0", "phase": "RUNNING"}],
    "tasks": [{"task": "a", "owner": "e1"}, {"task": "b", "owner": "e1"}, {"task": "c", "owner": None}],
    "stores": [{"store": "seen", "bytes": 8192, "entries": 90}, {"store": "other", "bytes": 1, "entries": 1}],
    "degraded": ["1 of 3 tasks have no owner: c"],
}


def test_the_screen_has_containers_inputs_stores_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    state = evolve(INITIAL, committed([*SETTINGS, OWN, RunPut(run_id="run", ended=False)], 0))

    described = describe.describe_job(STATUS, state, CONFIG)
    describe._print(described)

    assert ("degraded", 3) == (described["state"], described["taskCount"])
    stores = [{"store": "seen", "scope": "key", "topic": TOPIC, "partitions": 4, "bytes": 8192, "entries": 90}]
    assert stores == described["stores"]
    assert [{"stream": "kafka.flights", "partitions": None, "kind": "input"}] == described["inputs"]
    lines = capsys.readouterr().out.splitlines()
    assert ["0", "e1", "-", "RUNNING", "2", "-", "-"] in [line.split() for line in lines]
    assert ["seen", "key", TOPIC, "4", "8192", "90"] in [line.split() for line in lines]
    assert "degraded: 1 of 3 tasks have no owner: c" == lines[-1]


def test_a_job_that_was_stopped_in_order_has_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    state = evolve(INITIAL, committed([*SETTINGS, RunPut(run_id="run", ended=True)], 0))

    described = describe.describe_job({"job": CONFIG.job, "degraded": []}, state, CONFIG)
    describe._print(described)

    assert "stopped" == described["state"]
    assert [(None, None)] == [(row["bytes"], row["entries"]) for row in described["stores"]]
    assert "nothing is wrong" == capsys.readouterr().out.splitlines()[-1]
