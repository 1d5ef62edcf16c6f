"""The auditor agrees with the coordinator's records, and names forbidden ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration_tests.support.coordinator_audit import Audit, Audited
from samzapy.config import JobConfig
from samzapy.coordinator.assignment.grants import owners
from samzapy.coordinator.replay import replay
from samzapy.model.container import ContainerPhase
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World

Records = list[Audited]


def a_stream() -> Records:
    """Two coordinators in turn; one lost execution, its successor, and a stopped one."""
    return audited(a_world())


def a_world(config: JobConfig | None = None) -> World:
    world = World(config=config or a_config())
    first = world.coordinator()
    first.become_leader()
    first.submit(a_submission(config=world.config))
    world.queue.append(a_heartbeat(state=ContainerPhase.STARTED))
    first.run_once(0)
    world.queue.append(a_heartbeat())
    first.run_once(0)
    world.alive = {100: False}
    second = world.coordinator("b")
    second.become_leader()
    second.submit(a_submission(config=world.config))
    world.queue.append(a_heartbeat("e2", pid=200))
    second.run_once(0)
    return world


def audited(world: World) -> Records:
    return [Audited(record.offset, record.key, record.value, record.headers) for record in world.log().read()]


def complaints(records: Records) -> str:
    return "\n".join(Audit().read(records).finish())


def find(records: Records, key: bytes, nth: int = 0) -> int:
    return [index for index, record in enumerate(records) if record.key.startswith(key)][nth]


def test_a_real_stream_is_in_order_and_gives_the_owners_that_the_coordinator_gives() -> None:
    world = a_world()
    audit = Audit().read(audited(world))

    assert [] == audit.finish()
    state = replay(world.log().read(), topic="t").state
    owned = owners(state)
    assert {planned.task_name: "e2" for planned in state.plan} == audit.owners()
    assert audit.owners() == {name: grant.execution_id for name, grant in owned.items()}


def test_a_task_s_positions_are_those_of_its_buckets_and_of_the_broadcast_inputs() -> None:
    audit = Audit().read(audited(a_world(a_config(task_broadcast_inputs="kafka.rules#[0-1]"))))

    name = "SystemStreamPartition_kafka.orders.1"
    assert ["kafka.orders.1"] == [ssp_kb.partition(":")[0] for ssp_kb in audit.planned_buckets()[name]]
    read_by_all = [f"kafka.rules.0@{name}", f"kafka.rules.1@{name}"]
    assert [*audit.planned_buckets()[name], *read_by_all] == audit.planned_positions()[name]


def test_every_bucket_has_its_owner_and_none_while_nothing_is_granted() -> None:
    records = audited(a_world())
    nothing_granted = [record for record in records if not record.key.startswith(b"grant/")]

    findings = Audit().read(records)
    without = Audit().read(nothing_granted)

    assert {(ssp_kb, ("e2",)) for ssp_kbs in findings.planned_buckets().values() for ssp_kb in ssp_kbs} == {
        (ssp_kb, tuple(executions)) for ssp_kb, executions in findings.owners_of_buckets().items()
    }
    assert findings.planned_buckets() and {"0": "e2"} == findings.newest_executions()
    assert set(findings.owners_of_buckets()) == set(without.owners_of_buckets())
    assert not any(without.owners_of_buckets().values())


def test_a_bucket_of_two_tasks_is_reported_with_both_owners() -> None:
    records = audited(a_world())
    forget_the_fence(records)
    kept = [record for record in records if record.value is not None or not record.key.startswith(b"grant/")]

    findings = Audit().read(kept)

    assert {("e1", "e2")} == {tuple(executions) for executions in findings.owners_of_buckets().values()}


def lose(records: Records) -> None:
    del records[find(records, b"grant/")]


def double(records: Records) -> None:
    at = find(records, b"grant/")
    records.insert(at, records[at])


def swap(records: Records) -> None:
    at = find(records, b"grant/")
    records[at - 1], records[at] = records[at], records[at - 1]


def forget_the_fence(records: Records) -> None:
    """Without the FENCED record and its gap in the numbers, only the owners are wrong."""
    at = find(records, b"container/e1", -1)
    del records[at]
    for index in range(at, len(records)):
        records[index] = with_header(records[index], "seq", int(header(records[index], "seq")) - 1)


def write_in_the_old_term(records: Records) -> None:
    records[-1] = with_header(records[-1], "term", 1)


def begin_a_term_without_its_record(records: Records) -> None:
    records[-1] = with_header(records[-1], "term", 3)


def drop_headers(records: Records) -> None:
    records[5] = records[5]._replace(headers=())


def withdraw_the_only_grant(records: Records) -> None:
    key = max(Audit().read(records).grants)
    last = records[find(records, key.encode())]
    ending = with_header(last, "seq", int(header(records[-1], "seq")) + 1)
    records.append(ending._replace(offset=records[-1].offset + 1, value=None))


def header(record: Audited, name: str) -> str:
    return (dict(record.headers)[name] or b"").decode()


def with_header(record: Audited, name: str, value: int) -> Audited:
    return record._replace(headers=tuple({**dict(record.headers), name: str(value).encode()}.items()))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lose, "a gap"),
        (double, "two writers"),
        (swap, "two writers"),
        (forget_the_fence, "two owners"),
        (write_in_the_old_term, "of term 1 follows term 2"),
        (begin_a_term_without_its_record, "of term 3 follows term 2"),
        (drop_headers, "lacks the headers"),
        (withdraw_the_only_grant, "was removed and no later grant has"),
    ],
)
def test_a_stream_that_breaks_a_law_is_named(spoil: Callable[[Records], None], complaint: str) -> None:
    records = a_stream()
    spoil(records)

    assert complaint in complaints(records)


def test_a_stream_without_a_plan_is_named() -> None:
    assert "no plan ever took effect" == complaints([])


def test_a_released_task_may_move_to_another_container_while_the_earlier_one_lives() -> None:
    audit = Audit().read(a_stream())
    first, second = "e2", "e3"
    audit.phases |= {second: "RUNNING"}
    key = max(key for key, grant in audit.grants.items() if grant["execution_id"] == first)
    taken = dict(audit.grants[key])

    def granted_on() -> list[str]:
        before = len(audit.complaints)
        audit.epoch += 1
        audit._grant("grant/anew", {**taken, "execution_id": second, "epoch": audit.epoch})
        audit.grants.pop("grant/anew")
        return audit.complaints[before:]

    assert "two owners" in " ".join(granted_on())
    audit._grant(key, {**taken, "released": True})
    assert [] == granted_on()


def test_a_grant_is_released_once_and_changed_in_no_other_way() -> None:
    audit = Audit().read(a_stream())
    key, grant = max(audit.grants.items())
    before = len(audit.complaints)

    audit._grant(key, {**grant, "released": True})
    assert before == len(audit.complaints)
    audit._grant(key, {**grant, "released": False})
    assert "not only released" in audit.complaints[-1]
