"""Tasks are spread evenly and stay where they were."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from samzapy.plan.container_grouping import group_tasks

TASKS = st.lists(st.integers(0, 40).map(lambda number: f"Partition_{number}"), unique=True, max_size=30)
PROCESSORS = st.lists(st.integers(0, 12).map(str), unique=True, min_size=1, max_size=6)


@given(
    tasks=TASKS,
    processors=PROCESSORS,
    before=st.dictionaries(st.sampled_from([f"Partition_{n}" for n in range(41)]), st.integers(0, 12).map(str)),
)
def test_shares_differ_by_one_at_most(tasks, processors, before):
    counted = Counter(group_tasks(tasks, processors, before).values())

    sizes = [counted[processor] for processor in processors]
    assert max(sizes) - min(sizes) <= 1
    assert len(tasks) == sum(sizes)


@given(tasks=TASKS, processors=PROCESSORS)
def test_an_unchanged_group_moves_nothing_and_its_order_does_not_matter(tasks, processors):
    first = group_tasks(tasks, processors, {})

    assert first == group_tasks(tasks, processors[::-1], first)


def test_a_processor_that_joins_takes_only_what_makes_it_even():
    tasks = [f"Partition_{number}" for number in range(6)]
    before = group_tasks(tasks, ["0", "1"], {})

    after = group_tasks(tasks, ["0", "1", "2"], before)

    assert sum(before[task] != after[task] for task in tasks) == 2
    assert {"2"} == {after[task] for task in tasks if before[task] != after[task]}


def test_the_processor_that_had_more_keeps_the_odd_one():
    tasks = ["Partition_0", "Partition_1", "Partition_2"]
    before = {"Partition_0": "1", "Partition_1": "1", "Partition_2": "0"}

    assert before == group_tasks(tasks, ["0", "1"], before)
