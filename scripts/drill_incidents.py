"""The incidents of the drill: how each is made, and the signs of its cause."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from drill_world import INPUT, JOB, PARTITIONS, World

from samzapy.model.topics import changelog_topic, coordinator_topic
from samzapy.placement import Action, ContainerPlacementMetadataStore

STATUS: Final = ("job", "status")
DOCTOR: Final = ("doctor",)
TOP: Final = ("job", "top")
_HOST: Final = "host-a"
_LOST_HOST: Final = "host-b"
_WITHIN_S: Final = 30.0
_DISK_MB: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident, and where its cause is shown.

    Attributes:
        cause: the right answer of a person.
        strike: makes it; gives the uuid of the request that it sends, or an empty text.
        cli, page: the signs of the cause in the output of commands, and in the text of the page.
        commands: those that are looked at, without the job's options; `{request}` is that uuid.
        views: of the page.
        hosts, disk_mb: of the world.
    """

    name: str
    cause: str
    strike: Callable[[World], str]
    cli: str
    page: str
    commands: Sequence[Sequence[str]] = (STATUS, DOCTOR)
    views: Sequence[str] = ("/", "/ui/tasks", "/ui/containers")
    hosts: Sequence[str] = (_HOST,)
    disk_mb: int = 0

    @property
    def names_request(self) -> bool:
        """Whether its commands name a request, which is there only after the incident."""
        return any("{request}" in parts for parts in self.commands)


def _kill_broker(world: World) -> str:
    world.broker.kill()
    return ""


def _pause_broker(world: World) -> str:
    world.broker.pause()
    return ""


def _send_poison(world: World) -> str:
    world.send([("customer-1", {"amount": None})])
    return ""


def _send_one_key(world: World) -> str:
    world.send([("customer-1", {"amount": 1, "work_ms": 20})] * 20_000)
    return ""


def _fill_disk(world: World) -> str:
    note = "x" * 500_000
    world.send([(f"new-{number}", {"amount": 1, "note": note}) for number in range(4 * _DISK_MB)])
    return ""


def _lose_host(world: World) -> str:
    world.kill_containers(_LOST_HOST)
    # The launcher can start nothing there any more.
    shutil.rmtree(world.cluster / _LOST_HOST, ignore_errors=True)
    (world.cluster / _LOST_HOST).write_text("this host is gone\n")
    return ""


def _hold_restore(world: World) -> str:
    """Leave a transaction open on the changelog, and remove the local state."""
    producer = Producer(
        {
            "bootstrap.servers": world.broker.bootstrap_servers,
            "transactional.id": "of-another-program",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(_WITHIN_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(changelog_topic(JOB, "totals"), b"x", b"x", partition)
    producer.flush(_WITHIN_S)
    world.kill_containers(_HOST)
    shutil.rmtree(world.cluster / _HOST / "state", ignore_errors=True)
    return ""


def _delete_records(world: World) -> str:
    """Delete unread messages while no container runs."""
    world.kill_containers(_HOST)
    world.send([(f"customer-{number}", {"amount": 1}) for number in range(200)])
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap_servers, "log_level": 0})
    to_end = [TopicPartition(INPUT, partition, -1) for partition in range(PARTITIONS)]
    for done in admin.delete_records(to_end).values():
        done.result(_WITHIN_S)
    return ""


def _ask_with_old_generation(world: World) -> str:
    status = world.status()
    with ContainerPlacementMetadataStore(world.broker.bootstrap_servers, job=JOB) as store:
        uuid = store.write_container_placement_request_message(
            deployment_id=str(status["runId"]),
            processor_id="0",
            request_expiry=timedelta(minutes=5),
            action=Action.RESTART_QUERY,
            arguments={"expectedGeneration": str(int(status["generation"]) - 1)},
        )
    return str(uuid)


def _write_to_stream(world: World) -> str:
    producer = Producer({"bootstrap.servers": world.broker.bootstrap_servers})
    producer.produce(coordinator_topic(JOB), b'{"ours": false}', b"factor")
    producer.flush(_WITHIN_S)
    return ""


INCIDENTS: Final[Mapping[str, Incident]] = {
    one.name: one
    for one in (
        Incident(
            name="broker-down",
            cause="the broker is down: it refuses connections",
            strike=_kill_broker,
            cli="[^ ]* failed: Connection refused",
            page="broker-unreachable: this process leads.{0,80}refuses connections",
        ),
        Incident(
            name="broker-slow",
            cause="the broker hangs: it takes connections, and does not answer",
            strike=_pause_broker,
            cli="time-outs: neither an answer nor a refused connection",
            page="broker-unreachable: this process leads.{0,80}accepts connections, and does not answer",
        ),
        Incident(
            name="poison-message",
            cause="a message fails in the task",
            strike=_send_poison,
            cli=r"ended with exit code 7: .{0,200}",
            page=r"ended with exit code 7: .{0,200}",
        ),
        Incident(
            name="skewed-key",
            cause="one key has most of the messages",
            strike=_send_one_key,
            cli="One key is the problem: .{0,200}",
            page="One key is the problem: .{0,200}",
            commands=(TOP,),
            views=("/", "/ui/load"),
        ),
        Incident(
            name="full-disk",
            cause="the disk with the local state is full",
            strike=_fill_disk,
            cli=r"[^:]{0,80}, and 0\.\d MB free on its disk",
            page=r"[^:]{0,80}, and 0\.\d MB free on its disk",
            disk_mb=_DISK_MB,
        ),
        Incident(
            name="lost-host",
            cause="a host is lost, and its container has no other place",
            strike=_lose_host,
            cli="no-room: .{0,200}",
            page="no-room: .{0,200}",
            hosts=(_HOST, _LOST_HOST),
        ),
        Incident(
            name="stuck-restore",
            strike=_hold_restore,
            cause="the restore of the state waits for another program's transaction",
            cli=r"transaction-open: .{0,160}waiting for a transaction of another producer, open on \S+ from offset \d+",
            page=r"waiting for a transaction of another producer, open on \S+ from offset \d+",
        ),
        Incident(
            name="retention-passed",
            cause="Kafka deleted messages that were not read yet",
            strike=_delete_records,
            cli="but the topic now begins at .{0,100}are gone unread",
            page="but the topic now begins at .{0,100}are gone unread",
        ),
        Incident(
            name="stale-generation",
            cause="a request was made for an older plan",
            strike=_ask_with_old_generation,
            cli="expectedGeneration: wanted the plan that is in force.{0,100}",
            page="expectedGeneration: wanted the plan that is in force.{0,100}",
            commands=(("container", "status", "{request}"),),
            views=("/", "/ui/requests"),
        ),
        Incident(
            name="rogue-producer",
            cause="another program writes to a topic of the job",
            strike=_write_to_stream,
            cli="wanted a record with the leader's headers, found none of them",
            page="wanted a record with the leader's headers, found none of them",
        ),
    )
}
