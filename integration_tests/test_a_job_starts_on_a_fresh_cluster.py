"""First starts of jobs on three brokers, which hear of the new topics in turn."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from integration_tests.candidates import Contest
from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.config import JobConfig
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import coordinator_transactional_id
from samzapy.model.topics import coordinator_topic
from samzapy.plan.groupers import NO_GROUPERS
from samzapy.runtime.submission import read_state, submission_of
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.builders import a_config
from samzapy.testing.topics import create_topics

STARTS = 30


def first_start(config: JobConfig, bootstrap_servers: str) -> CoordinatorState:
    """The steps of a process before Spark starts; each start has its own clients."""
    connection = KafkaConnection(bootstrap_servers=bootstrap_servers)
    admin = KafkaAdmin(connection)
    admin.check_reachable()
    submission_of(config, admin, "test", NO_GROUPERS)
    log = KafkaLog(connection, coordinator_topic(config.job), coordinator_transactional_id(config.job))
    log.take_over()
    log.close()
    return read_state(config, connection)


def test_thirty_jobs_start_for_the_first_time_at_their_first_try(own_cluster: DevCluster) -> None:
    servers = own_cluster.bootstrap_servers
    user = AdminClient({"bootstrap.servers": servers})
    for number in range(STARTS):
        input_topic = f"orders-{number}"
        # As a user does it: the next command starts the job, although some brokers may not know its topics yet.
        create_topics(user, [NewTopic(input_topic, 4)])
        config = a_config(
            job_name=f"fresh{number}",
            task_inputs=f"kafka.{input_topic}",
            stores_sums_msg_serde="json",
            local_store_dir="/data",
        )
        assert first_start(config, servers).generation is None

    with Contest(servers) as contest:
        candidate = contest.candidate()
        contest.wait_for_term(1)
        assert candidate.leads()
