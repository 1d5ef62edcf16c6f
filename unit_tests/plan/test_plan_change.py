"""Which tasks move and stay, the cost and the reasons."""

from dataclasses import replace

from samzapy.model.container import Locality
from samzapy.model.ssp import SystemStream
from samzapy.plan.job_plan import plan_job
from samzapy.plan.plan_change import Change, StateSize, plan_change, plan_change_json
from samzapy.testing.builders import a_config

COUNTS = {SystemStream("kafka", "orders"): 4}
BIG = StateSize(1000, 50_000)


def a_plan(processors, before=None, locality=None, counts=COUNTS):
    return plan_job(a_config(), counts, before, processors, locality=locality or Locality())


def planned_together(before, locality, **factor):
    """Of a job whose parts stay with their parents."""
    config = a_config(job_elasticity_colocate="true")
    return plan_job(config, COUNTS, before, ["0", "1"], locality=locality, **factor)


def changed(before, after, locality=None, size_of=lambda task: BIG):
    return plan_change(before, after, locality or Locality(), size_of)


def test_a_first_plan_is_all_new_and_comes_from_nothing():
    change = changed(None, a_plan(["0", "1"]))

    assert (0, ()) == (change.generation_from, change.gone)
    assert [(Change.NEW, None, "new; least loaded")] * 4 == [
        (task.change, task.processor_before, task.why) for task in change.tasks
    ]
    assert {"stays": 0, "moves": 0, "splits": 0, "merges": 0, "new": 4, "gone": 0} == change.counts


def test_each_task_has_the_reason_for_its_place():
    before = a_plan(["0", "1"])
    lost = {task.name: "host-b" for task in before.tasks if task.partition_id == 1}
    locality = Locality(processors={"0": "host-a", "2": "host-b", "3": "host-c"}, tasks=lost)
    counts = {SystemStream("kafka", "orders"): 5}

    change = changed(before, a_plan(["0", "2", "3"], before, locality, counts), locality)

    assert [
        ("stays", "0", "previous processor"),
        ("moves", "2", "processor 1 is gone; same host as its state (host-b)"),
        ("stays", "0", "previous processor"),
        ("moves", "3", "processor 1 is gone; least loaded"),
        ("new", "2", "new; least loaded"),
    ] == [(task.change.value, task.processor_id, task.why) for task in change.tasks]


def test_splits_and_merges_name_their_parents():
    counts = {SystemStream("kafka", "orders"): 1}
    whole = a_plan(["0"], counts=counts)
    parts = plan_job(a_config(), counts, whole, ["0", "1"], factor=2)
    name = whole.tasks[0].name

    split, merge = changed(whole, parts), changed(parts, plan_job(a_config(), counts, parts, ["0"]))

    assert [
        (f"{name}-0-2", "splits", "0", "0", f"part of {name}; same processor"),
        (f"{name}-1-2", "splits", "0", "1", f"part of {name}; least loaded"),
    ] == [
        (task.task_name, task.change.value, task.processor_before, task.processor_id, task.why)
        for task in split.tasks
    ]
    assert [(name, "merges", None, f"made of {name}-0-2, {name}-1-2; least loaded")] == [
        (task.task_name, task.change.value, task.processor_before, task.why) for task in merge.tasks
    ]
    assert (name,) == split.gone
    assert [f"{name}-0-2", f"{name}-1-2"] == plan_change_json("flights-1", merge)["tasks"][0]["parents"]


def test_a_task_that_leaves_for_balance_has_that_reason():
    before = a_plan(["0"])

    moved = [task for task in changed(before, a_plan(["0", "1"], before)).tasks if task.change is Change.MOVES]

    assert ["processor 0 has its share; least loaded"] * 2 == [task.why for task in moved]


def test_where_a_grouper_of_the_job_chose_the_reason_names_it():
    def by_grouper(plan):
        return replace(plan, config={**plan.config, "task.name.grouper.factory": "groupers:ByRack"})

    before, counts = a_plan(["0"]), {SystemStream("kafka", "orders"): 5}
    grown = by_grouper(a_plan(["0", "1"], before, counts=counts))
    chosen = "chosen by the job's grouper (groupers:ByRack)"

    whys = {task.change: task.why for task in changed(before, grown).tasks}
    assert {Change.STAYS: chosen, Change.MOVES: chosen, Change.NEW: f"new; {chosen}"} == whys
    left = [task.why for task in changed(grown, by_grouper(a_plan(["1"], grown, counts=counts))).tasks]
    assert {chosen, f"processor 0 is gone; {chosen}"} == {*left}
    parts = by_grouper(plan_job(a_config(), COUNTS, before, ["0", "1"], factor=2))
    assert {f"part of {task.name}; {chosen}" for task in before.tasks} == {
        task.why for task in changed(before, parts).tasks
    }


def test_only_tasks_away_from_their_state_are_to_be_restored():
    before = a_plan(["0", "1"])
    at_b = {task.name: "host-b" for task in before.tasks if task.partition_id == 1}
    # Task 2 is known to have its state on a host where its processor no longer is.
    left_behind = {task.name: "host-z" for task in before.tasks if task.partition_id == 2}
    locality = Locality(processors={"0": "host-a", "2": "host-b"}, tasks=at_b | left_behind)

    change = changed(before, a_plan(["0", "2"], before, locality), locality)

    assert [0, 0, 1000, 1000] == [task.restore.records_max for task in change.tasks]
    assert StateSize(2000, 100_000) == change.restore


def test_a_size_that_is_not_known_makes_the_sum_unknown():
    change = changed(None, a_plan(["0"]), size_of=lambda task: BIG if task.partition_id else None)

    assert change.restore is None
    totals = plan_change_json("flights-1", change)["totals"]
    assert (None, None) == (totals["restoreRecordsMax"], totals["restoreBytesAbout"])


def on_hosts(plan, hosts):
    """Where the state of `plan` is, with its processors on `hosts`."""
    owners = {task.name: container.processor_id for container in plan.containers for task in container.tasks}
    return Locality(processors=hosts, tasks={name: hosts[owner] for name, owner in owners.items()})


def test_tasks_that_split_or_merge_on_their_host_are_copied_there_each_its_share():
    hosts = {"0": "host-a", "1": "host-b"}
    whole = a_plan(["0", "1"], locality=Locality(processors=hosts))
    at_home = on_hosts(whole, hosts)
    parts = planned_together(whole, at_home, factor=2)

    split = changed(whole, parts, at_home)
    merged = on_hosts(parts, hosts)
    merge = changed(parts, planned_together(parts, merged), merged)

    assert [(0, 25_000)] * 8 == [(task.restore.bytes_about, task.copy_bytes) for task in split.tasks]
    assert [(0, 50_000)] * 4 == [(task.restore.bytes_about, task.copy_bytes) for task in merge.tasks]
    assert [200_000, 200_000] == [change.copy_bytes for change in (split, merge)]
    shown = plan_change_json("flights-1", split)
    assert (25_000, 200_000) == (shown["tasks"][0]["copyBytesAbout"], shown["totals"]["copyBytesAbout"])
    unknown = changed(whole, parts, at_home, size_of=lambda task: None)
    assert (None, None) == (unknown.copy_bytes, unknown.expected_pause_ms)


def test_the_expected_pause_is_that_of_the_container_with_the_most_state_to_take_over():
    hosts = {"0": "host-a", "1": "host-b"}
    whole = a_plan(["0", "1"], locality=Locality(processors=hosts))
    at_home = on_hosts(whole, hosts)
    parts = planned_together(whole, at_home, factor=2)
    numbers_of_0 = {
        task.partition_id
        for container in whole.containers
        if container.processor_id == "0"
        for task in container.tasks
    }

    def size_of(task):
        return StateSize(1, 100_000_000 if task.partition_id in numbers_of_0 else 1_000_000)

    split = changed(whole, parts, at_home, size_of)
    from_elsewhere = changed(whole, parts, Locality(processors=hosts), size_of)

    # 200 MB out of stores; four times 100 MB out of the changelog, which a part reads whole.
    assert (1_200 + 1_800, 1_200 + 8_000) == (split.expected_pause_ms, from_elsewhere.expected_pause_ms)
    assert 3_000 == plan_change_json("flights-1", split)["totals"]["expectedPauseMs"]


def test_no_task_waits_for_a_first_or_unchanged_plan():
    before = a_plan(["0", "1"])

    assert [0, 0] == [
        changed(old, a_plan(["0", "1"], old), size_of=lambda task: None).expected_pause_ms for old in (None, before)
    ]


def test_tasks_that_are_no_more_are_named():
    config = a_config(task_inputs="kafka.orders,kafka.refunds")
    counts = COUNTS | {SystemStream("kafka", "refunds"): 1}
    before = plan_job(config, counts, None, ["0"])

    change = changed(before, a_plan(["0"], before, counts=counts))

    assert ("SystemStreamPartition_kafka.refunds.0",) == change.gone
    assert (1, 1) == (change.generation_from, change.counts["gone"])
