"""Input that retention deleted unread, at the processor that does not lead."""

from __future__ import annotations

from confluent_kafka import Producer, TopicPartition

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.container import slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.codec import encode
from samzapy.stream.records import CheckpointPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

AHEAD = 1_000_000
"""Read past every record of the stream."""


def granted(job: SmallJob, execution_id: str) -> Grant | None:
    """The newest grant of an execution."""
    grants = [grant for grant in job.service.status().state.grants_sorted if grant.execution_id == execution_id]
    return grants[-1] if grants else None


def held(job: SmallJob, execution_id: str, processor_id: str) -> list[dict[str, object]]:
    """The tasks of the execution, without those that the plan takes away."""
    state = job.service.status().state
    planned = {planned.task_name for planned in state.plan if planned.processor_id == processor_id}
    return [
        {"task": grant.task_name, "epoch": grant.epoch}
        for grant in state.grants_sorted
        if grant.execution_id == execution_id and grant.task_name in planned and not grant.released
    ]


def commit(job: SmallJob, grant: Grant, offset_next: int) -> None:
    """Commit as a worker does under `grant`."""
    checkpoint = Checkpoint(
        ssp_kb=grant.starts[0].ssp_kb,
        offset_next=offset_next,
        epoch=grant.epoch,
        task_name=grant.task_name,
        execution_id=grant.execution_id,
    )
    key, value = encode(CheckpointPut(checkpoint=checkpoint))
    producer = Producer(
        {
            "bootstrap.servers": job.connection.bootstrap_servers,
            "transactional.id": slot_transactional_id(job.job, grant.execution_id, 0),
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(checkpoint_topic(job.job), key=key, value=value)
    producer.commit_transaction(30)


def test_a_setting_at_a_processor_that_does_not_lead_accepts_exactly_its_lost_range(broker: DevBroker) -> None:
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    with SmallJob(connection, job_debounce_time_ms="0") as job:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20):
            producer.produce(job.input, str(number), partition=number % 2)
        assert 0 == producer.flush(30)

        def join(execution_id: str, *words: str) -> Grant:
            """Processor 1 comes (back), beside processor 0, and is given its task."""

            def grant_of_it() -> Grant | None:
                job.heartbeat("e0", held(job, "e0", "0"), streamOffset=AHEAD)
                more = {"streamOffset": AHEAD, "acceptedLosses": list(words)}
                job.heartbeat(execution_id, held(job, execution_id, "1"), "1", **more)
                return granted(job, execution_id)

            return wait_until(grant_of_it, 30, f"a grant of {execution_id}", poll_interval_s=0.2)

        def leave(execution_id: str) -> None:
            job.heartbeat(execution_id, [], "1", streamOffset=AHEAD, state="STOPPED", reason="a lost range")

        wait_until(lambda: job.heartbeat("e0") and granted(job, "e0"), 30, "grants of the first processor")
        first = join("e1")
        (start,) = first.starts
        commit(job, first, 4)
        (deleted,) = job.client.delete_records([TopicPartition(job.input, start.ssp_kb.ssp.partition, 7)]).values()
        deleted.result(30)
        leave("e1")

        begun = []
        for number, words in enumerate(
            ((), (f"{start.ssp_kb}@4-6",), (f"{start.ssp_kb}@3-7",), (f"{start.ssp_kb}@4-7",))
        ):
            begun.append(join(f"e{number + 2}", *words).starts[0].offset_next)
            leave(f"e{number + 2}")

        # Outside the topic's offsets a container stops with an error; its offset stays until the range is accepted.
        assert [0, 4, 4, 4, 7] == [start.offset_next, *begun]
        (loss,) = job.service.status().state.accepted_losses.values()
        assert (start.ssp_kb, 4, 7) == (loss.ssp_kb, loss.offset_from, loss.offset_to)
