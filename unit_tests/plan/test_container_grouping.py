"""Tasks are spread evenly, stay where they were, and else go to their state."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.container import NO_LOCALITY, Locality
from samzapy.model.launch import standby_name
from samzapy.model.ssp import SystemStream
from samzapy.plan.container_grouping import group_tasks
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config, a_launch

CASES = Path(__file__).parent.parent / "samza_cases" / "group_containers.jsonl"
TASKS = st.lists(st.integers(0, 40).map(lambda number: f"Partition_{number}"), unique=True, max_size=30)
PROCESSORS = st.lists(st.integers(0, 12).map(str), unique=True, min_size=1, max_size=6)
ANY_TASK = st.sampled_from([f"Partition_{n}" for n in range(41)])
HOSTS = st.sampled_from(["host-a", "host-b", "host-c"])
BEFORE = st.dictionaries(ANY_TASK, st.integers(0, 12).map(str))
LOCALITIES = st.builds(
    Locality,
    processors=st.dictionaries(st.integers(0, 12).map(str), HOSTS),
    tasks=st.dictionaries(ANY_TASK, HOSTS),
)


def had(tasks, processors, before):
    return Counter(before[task] for task in tasks if before.get(task) in processors)


def stayed(groups, before):
    return sum(before.get(task) == processor for task, processor in groups.items())


def at_home(groups, locality):
    """How many tasks find their state on the host of their processor."""
    return sum(
        task in locality.tasks and locality.tasks[task] == locality.processors.get(processor)
        for task, processor in groups.items()
    )


@given(tasks=TASKS, processors=PROCESSORS, before=BEFORE, locality=LOCALITIES)
def test_shares_differ_by_one_at_most(tasks, processors, before, locality):
    counted = Counter(group_tasks(tasks, processors, before, locality).values())

    sizes = [counted[processor] for processor in processors]
    assert max(sizes) - min(sizes) <= 1
    assert len(tasks) == sum(sizes)


@given(tasks=TASKS, processors=PROCESSORS, before=BEFORE, locality=LOCALITIES)
def test_no_balanced_answer_moves_fewer_tasks(tasks, processors, before, locality):
    groups = group_tasks(tasks, processors, before, locality)

    # A processor can keep its share of its tasks, and as many of them one more as the rest of the division.
    base, spare = divmod(len(tasks), len(processors))
    mine = had(tasks, processors, before)
    most = sum(min(count, base) for count in mine.values()) + min(spare, sum(n > base for n in mine.values()))
    assert most == stayed(groups, before)


@given(tasks=TASKS, processors=PROCESSORS, locality=LOCALITIES)
def test_as_many_tasks_as_possible_are_placed_where_their_state_is(tasks, processors, locality):
    groups = group_tasks(tasks, processors, {}, locality)

    base, spare = divmod(len(tasks), len(processors))
    expected = Counter(locality.tasks.get(task) for task in tasks)
    on_host = Counter(locality.processors[one] for one in processors if one in locality.processors)
    unmet = sum(min(on_host[host], max(0, expected[host] - base * on_host[host])) for host in on_host)
    most = sum(min(expected[host], base * on_host[host]) for host in on_host) + min(spare, unmet)
    assert most == at_home(groups, locality)


@given(tasks=TASKS, processors=PROCESSORS, before=BEFORE, locality=LOCALITIES)
def test_the_order_of_the_arguments_does_not_matter(tasks, processors, before, locality):
    turned = Locality(
        processors=dict(reversed(locality.processors.items())), tasks=dict(reversed(locality.tasks.items()))
    )

    one_way = group_tasks(tasks, processors, before, locality)

    assert one_way == group_tasks(tasks, processors[::-1], dict(reversed(before.items())), turned)


@given(tasks=TASKS, processors=PROCESSORS, before=BEFORE, locality=LOCALITIES, other=LOCALITIES)
def test_a_balanced_grouping_stays_wherever_processors_and_state_are(tasks, processors, before, locality, other):
    first = group_tasks(tasks, processors, before, locality)

    assert first == group_tasks(tasks, processors, first, other)


def test_a_processor_that_joins_takes_only_the_tasks_that_balance():
    tasks = [f"Partition_{number}" for number in range(6)]
    before = group_tasks(tasks, ["0", "1"], {})

    after = group_tasks(tasks, ["0", "1", "2"], before)

    assert sum(before[task] != after[task] for task in tasks) == 2
    assert {"2"} == {after[task] for task in tasks if before[task] != after[task]}


def test_the_processor_that_had_more_keeps_the_odd_one():
    tasks = ["Partition_0", "Partition_1", "Partition_2"]
    before = {"Partition_0": "1", "Partition_1": "1", "Partition_2": "0"}

    assert before == group_tasks(tasks, ["0", "1"], before)


def test_the_previous_processor_is_asked_before_the_host():
    before = {"Partition_0": "0", "Partition_1": "1"}
    # Both came back, each on the host where the other was.
    locality = Locality(processors={"0": "host-b", "1": "host-a"}, tasks={"Partition_0": "host-a"})

    assert before == group_tasks(["Partition_0", "Partition_1"], ["0", "1"], before, locality)


def test_the_tasks_of_a_lost_processor_move_to_one_on_its_host_and_then_to_any():
    tasks = [f"Partition_{number}" for number in range(6)]
    before = dict(zip(tasks, ["0", "0", "1", "1", "2", "2"], strict=True))
    locality = Locality(
        processors={"0": "host-a", "1": "host-b", "3": "host-a"},
        tasks={task: "host-a" for task in tasks if before[task] == "2"},
    )

    after = group_tasks(tasks, ["0", "1", "3"], before, locality)

    assert after == before | {"Partition_4": "3", "Partition_5": "3"}


def test_a_task_whose_state_is_elsewhere_is_the_first_to_leave():
    tasks = [f"Partition_{number}" for number in range(4)]
    locality = Locality(
        processors={"0": "host-a", "1": "host-b"},
        tasks=dict.fromkeys(tasks, "host-a") | {"Partition_0": "host-b"},
    )

    after = group_tasks(tasks, ["0", "1"], dict.fromkeys(tasks, "0"), locality)

    assert (after["Partition_0"], Counter(after.values())) == ("1", {"0": 2, "1": 2})


def cases():
    """Samza's own answers, without standbys' containers (`3-0`): see `standbys_of`."""
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    for case in cases:
        case["standbys"] = {name: tasks for name, tasks in case["out"].items() if "-" in name}
        case["out"] = {name: tasks for name, tasks in case["out"].items() if "-" not in name}
    return cases


def ours(case):
    given = case["in"]
    ids = given.get("ids") or sorted(given["processors"]) or [str(number) for number in range(given["count"])]
    # ANY_HOST is Samza's name for an unknown place.
    locality = Locality(
        processors={one: host for one, host in given["processors"].items() if host != "ANY_HOST"},
        tasks={task: host for task, host in given["task_hosts"].items() if host != "ANY_HOST"},
    )
    # Samza gives tasks out in the order of their names as text, ours in that of their numbers.
    return group_tasks(sorted(given["tasks"]), ids, given.get("previous", {}), locality), locality


def theirs(case):
    return {task: processor for processor, tasks in case["out"].items() for task in tasks}


def sets_of_tasks(groups):
    sets = {}
    for task, processor in groups.items():
        sets.setdefault(processor, set()).add(task)
    return sorted(sorted(tasks) for tasks in sets.values())


def is_balanced(case):
    sizes = [len(tasks) for tasks in case["out"].values()]
    return max(sizes) - min(sizes) <= 1


SOLVED = [case for case in cases() if "error" not in case["out"]]
REFUSED = [case for case in cases() if "error" in case["out"]]
FRESH = [case for case in SOLVED if not case["in"].get("previous") and not case["in"]["task_hosts"]]
KNOWN = [case for case in SOLVED if case not in FRESH and is_balanced(case)]


@pytest.mark.parametrize("case", FRESH, ids=lambda case: case["id"])
def test_a_fresh_grouping_makes_the_same_sets_as_samza(case):
    """The order of ids decides in Samza which processor gets a set; here it does not."""
    groups, _ = ours(case)

    assert sets_of_tasks(theirs(case)) == sets_of_tasks(groups)
    if case["in"]["how"] == "plain":
        assert theirs(case) == groups


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case["id"])
def test_with_a_past_no_more_moves_and_no_less_state_is_found_than_with_samza(case):
    """The tasks that move differ on purpose from Samza's.

    Samza takes the last by name, and knows only hosts where it has ids.
    """
    groups, locality = ours(case)

    before = case["in"].get("previous", {})
    assert stayed(groups, before) >= stayed(theirs(case), before)
    assert before or at_home(groups, locality) >= at_home(theirs(case), locality)


@pytest.mark.parametrize("case", [case for case in SOLVED if not is_balanced(case)], ids=lambda case: case["id"])
def test_a_mapping_that_samza_leaves_out_of_balance_is_balanced(case):
    counted = Counter(ours(case)[0].values())

    assert max(counted.values()) - min(counted.values()) <= 1


@pytest.mark.parametrize(
    "case",
    [case for case in REFUSED if 0 < len(case["in"]["tasks"]) < case["in"]["count"]],
    ids=lambda case: case["id"],
)
def test_processors_without_a_task_are_no_error(case):
    """Samza refuses fewer tasks than containers.

    Here a processor may wait for work, or for a bigger factor.
    """
    groups, _ = ours(case)

    assert len(set(groups.values())) == len(groups) == len(case["in"]["tasks"])


@pytest.mark.parametrize("case", [case for case in SOLVED if case["standbys"]], ids=lambda case: case["id"])
def test_a_standby_has_the_name_that_samza_gives_its_container_and_the_state_of_the_same_tasks(case):
    """Samza plans standbys as tasks of containers; here one is an execution.

    It has all that its processor has. Its host is decided when it is started (`coordinator.launching.standbys`).
    """
    of_each = range(case["in"]["replication"] - 1)

    expected = {
        standby_name(a_launch(processor_id=processor, standby=number)): sorted(
            f"Standby-{task}-{number}" for task in tasks
        )
        for processor, tasks in case["out"].items()
        for number in of_each
    }
    assert expected == {name: sorted(tasks) for name, tasks in case["standbys"].items()}


def test_all_recorded_cases_are_tested():
    assert len(FRESH) + len(KNOWN) + len(REFUSED) + sum(not is_balanced(case) for case in SOLVED) == len(cases())
    assert len(FRESH) >= 15 and len(KNOWN) >= 25
    assert 9 == sum("replication" in case["in"] for case in cases())


# --- the parts of a task ---

ORDERS = SystemStream("kafka", "orders")
FOUR_FACTORS = st.sampled_from([1, 2, 4, 8])


def planned(factor, processors, before=None, *, partitions=4, colocate="false", locality=NO_LOCALITY):
    config = a_config(job_elasticity_colocate=colocate)
    return plan_job(config, {ORDERS: partitions}, before, processors, factor=factor, locality=locality)


def homes(plan):
    """Where each finest part of each partition is."""
    return {
        (ssp_kb.ssp, bucket): container.processor_id
        for container in plan.containers
        for task in container.tasks
        for ssp_kb in task.ssp_kbs
        for bucket in range(ssp_kb.bucket, 8, ssp_kb.factor)
    }


SEVERAL_PROCESSORS = st.sets(st.integers(0, 6), min_size=1, max_size=5).map(lambda number: sorted(map(str, number)))


@given(
    st.lists(st.tuples(FOUR_FACTORS, SEVERAL_PROCESSORS), min_size=1, max_size=4),
    st.integers(1, 6),
    st.lists(st.sampled_from(["host-a", "host-b"]), min_size=7, max_size=7),
)
def test_the_parts_of_a_partition_are_spread_over_all_processors_whatever_was_before(steps, partitions, hosts):
    plan = None
    for factor, processors in steps:
        places = Locality(
            processors={one: hosts[int(one)] for one in processors},
            tasks={
                task.name: hosts[int(one.processor_id)]
                for one in (plan.containers if plan else ())
                for task in one.tasks
            },
        )
        plan = planned(factor, processors, plan, partitions=partitions, locality=places)

        parts = Counter((task.ssp_kbs[0].ssp, one.processor_id) for one in plan.containers for task in one.tasks)
        assert max(parts.values()) <= -(-factor // len(processors))
        counts = [len(one.tasks) for one in plan.containers]
        assert max(counts) - min(counts) <= 1
        assert homes(plan) == homes(planned(factor, processors, plan, partitions=partitions))


@given(FOUR_FACTORS, FOUR_FACTORS, st.sampled_from([1, 2, 4]))
def test_a_change_of_the_factor_leaves_each_processor_its_share(one, other, count):
    processors = [str(number) for number in range(count)]
    before = planned(one, processors)

    after = planned(other, processors, before)

    # In finest parts: the owner of a whole partition keeps one processor's share of it, and so back.
    stayed = sum(homes(before)[place] == processor for place, processor in homes(after).items())
    assert stayed >= len(homes(after)) / count


def test_a_task_that_only_full_processors_may_have_is_made_room_for():
    """Of B's parts one is left, and only where there is one already there is room."""
    base_of = {"A1": "A", "A2": "A", "B1": "B", "B2": "B"}
    before = {"A1": "0", "B1": "1", "B2": "1"}

    groups = group_tasks(list(base_of), ["0", "1"], before, base_of=base_of)

    assert {"0": ["A", "B"], "1": ["A", "B"]} == {
        one: sorted(base_of[task] for task, owner in groups.items() if owner == one) for one in ("0", "1")
    }


def test_a_child_begins_where_its_parent_s_state_is_when_its_processor_is_gone():
    before = planned(1, ["0"], partitions=1)
    locality = Locality(
        processors={"1": "host-a", "2": "host-b"}, tasks={task.name: "host-b" for task in before.tasks}
    )

    after = planned(2, ["1", "2"], before, partitions=1, locality=locality)

    # One each, and the first of them finds its state.
    assert {"2": [0], "1": [1]} == {
        container.processor_id: [task.ssp_kbs[0].bucket for task in container.tasks] for container in after.containers
    }


@given(FOUR_FACTORS, FOUR_FACTORS, st.integers(1, 6), st.integers(1, 4))
def test_colocated_parts_of_a_partition_are_on_one_processor_and_partitions_are_spread(one, other, partitions, count):
    processors = [str(number) for number in range(count)]
    before = planned(one, processors, partitions=partitions, colocate="true")

    after = planned(other, processors, before, partitions=partitions, colocate="true")

    for plan in (before, after):
        owners = {}
        for (ssp, _), processor in homes(plan).items():
            owners.setdefault(ssp, set()).add(processor)
        assert all(len(processors) == 1 for processors in owners.values())
        shares = Counter(next(iter(processors)) for processors in owners.values())
        assert max(shares.values()) - min((shares[one] for one in processors), default=0) <= 1
    assert homes(before) == homes(after)
