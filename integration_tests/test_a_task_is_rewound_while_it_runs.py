"""A task of a running job is rewound: its messages come again once and in order.

They are added to its state. The other tasks of the query continue.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from integration_tests.summed import EACH, KEYS, Summed, check_sums, feed
from samzapy.cli.job.group import job as job_command
from samzapy.coordinator.assignment.grants import newest_grants
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import make_topics

PARTITIONS = 4
REWOUND = 1
_WITHIN_S = 240.0


@pytest.mark.timeout(1500)
def test_only_the_messages_of_a_rewound_task_come_again_once_and_in_order(
    broker: DevBroker | ContainerBroker, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    summed = Summed(servers)
    fed = summed.topic("fed")
    make_topics(servers, {fed: PARTITIONS, **summed.outputs})
    feed(servers, fed, PARTITIONS)

    def asked(*arguments: str) -> str:
        address = ["--job", summed.job, "--bootstrap-servers", servers, "--stream", f"kafka.{fed}"]
        patience = ["--expiry", "200", "--timeout", "200"]
        result = CliRunner().invoke(job_command, ["rewind", *address, *patience, *arguments])
        assert result.exit_code == 0, result.exception
        return result.stdout

    with summed.process(tmp_path, f"kafka.{fed}") as job, summed.reader() as reader:

        def await_count(count: int, what: str) -> None:
            job.wait_until(lambda: len(reader.read()) >= count, _WITHIN_S, what)

        job.start()
        await_count(PARTITIONS * EACH, "every message to be answered")
        before = summed.state()
        task = next(planned.task_name for planned in before.plan if planned.ssp_kbs[0].ssp.partition == REWOUND)

        (move,) = json.loads(asked("--task", task, "--to", "oldest", "--plan", "-o", "json"))
        assert {
            "task": task,
            "position": f"kafka.{fed}.{REWOUND}:0/1",
            "from": EACH,
            "to": 0,
            "again": EACH,
            "skipped": 0,
        } == move
        assert "SUCCEEDED" in asked("--task", task, "--to", "oldest")
        await_count((PARTITIONS + 1) * EACH, "the messages to come again")
        # And on to a place in the middle.
        assert "SUCCEEDED" in asked("--partition", str(REWOUND), "--to", str(EACH - KEYS))
        await_count((PARTITIONS + 1) * EACH + KEYS, "the last ones to come once more")

        after = summed.state()
        assert job.terminate() == 0, job.log_text()[-4000:]
        outs = list(reader.read())

    first, again = outs[: PARTITIONS * EACH], outs[PARTITIONS * EACH :]
    places = [(REWOUND, offset) for offset in (*range(EACH), *range(EACH - KEYS, EACH))]
    assert places == [(out.partition, out.offset) for out in again]
    assert sorted((partition, offset) for partition in range(PARTITIONS) for offset in range(EACH)) == sorted(
        (out.partition, out.offset) for out in first
    )
    # State was not changed: each sum continues.
    check_sums(outs)
    assert "local state is rebuilt" not in job.all_log_text()
    assert {name: grant for name, grant in newest_grants(before).items() if name != task} == {
        name: grant for name, grant in newest_grants(after).items() if name != task
    }
