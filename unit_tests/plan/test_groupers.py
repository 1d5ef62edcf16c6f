"""A job's own groupers: asked twice, checked, and refused by name."""

import itertools
import sys
from dataclasses import replace

import pytest

from samzapy.errors import GrouperError, PartitionSchemeError
from samzapy.model.job import ContainerModel
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.groupers import Groupers, ssp_grouper_from, task_name_grouper_from
from samzapy.plan.job_plan import plan_job
from samzapy.testing.builders import a_config, an_ssp

ORDERS = SystemStream("kafka", "orders")
OWN_SSPS = {"job_systemstreampartition_grouper_factory": "own:Ssps"}
OWN_TASKS = {"task_name_grouper_factory": "own:Tasks"}
STORE = {"stores_seen_msg_serde": "json", "local_store_dir": "/data"}


class Ssps:
    """Answers with its argument; remembers the questions."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def group(self, previous, ssps):
        self.asked.append((previous, ssps))
        return self.answer(previous, ssps)


class Tasks(Ssps):
    def group(self, tasks, processor_ids, previous_containers):
        self.asked.append((processor_ids, previous_containers))
        return self.answer(tasks, processor_ids, previous_containers)


def planned(ssps=None, tasks=None, *, previous=None, count=4, processors=("0", "1"), **properties):
    properties |= OWN_SSPS if ssps is not None else {}
    properties |= OWN_TASKS if tasks is not None else {}
    groupers = Groupers(ssps=ssps, tasks=tasks)
    return plan_job(a_config(**properties), {ORDERS: count}, previous, list(processors), groupers=groupers)


def halves(previous, ssps):
    return {"low": set(ssps[: len(ssps) // 2]), "high": ssps[len(ssps) // 2 :]}


def test_tasks_are_numbered_by_their_first_ssp_whatever_the_order_of_the_answer():
    one_way = planned(Ssps(halves))
    other_way = planned(Ssps(lambda previous, ssps: dict(reversed(halves(previous, ssps).items()))))

    assert [("low", 0), ("high", 1)] == [(task.name, task.partition_id) for task in one_way.tasks]
    assert repr(one_way) == repr(other_way)


def test_only_the_grouper_of_a_job_with_state_gets_the_previous_tasks():
    stateful, stateless = Ssps(halves), Ssps(halves)
    for grouper, properties in ((stateful, STORE), (stateless, {})):
        planned(grouper, previous=planned(grouper, **properties), **properties)

    names = [{}, {}, *[dict(zip(map(an_ssp_of, range(4)), ["low", "low", "high", "high"], strict=True))] * 2]
    assert names == [previous for previous, _ in stateful.asked]
    assert [{}] * 4 == [previous for previous, _ in stateless.asked]
    assert tuple(map(an_ssp_of, range(4))) == stateful.asked[0][1]


def an_ssp_of(partition):
    return SystemStreamPartition("kafka", "orders", partition)


def test_a_grouper_that_changes_its_arguments_changes_nothing_else():
    def forgetful(previous, ssps):
        previous.clear()
        return {"high": ssps[:2], "low": ssps[2:]}

    before = planned(Ssps(halves), **STORE)

    with pytest.raises(PartitionSchemeError, match="wanted it in task low"):
        planned(Ssps(forgetful), previous=before, **STORE)


class WithoutText(Exception):
    def __str__(self):
        return 7


def raise_without_a_text():
    raise WithoutText


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda previous, ssps: {"a": ssps[1:]}, r"kafka\.orders\.0 in a task, found it in none"),
        (lambda previous, ssps: {"a": ssps, "b": ssps[:1]}, r"kafka\.orders\.0 in one task, found it in a and in b"),
        (lambda previous, ssps: {"a": [*ssps, ssps[0]]}, r"kafka\.orders\.0 in one task, found it in a and in a"),
        (
            lambda previous, ssps: {"a": [*ssps, an_ssp("kafka.x.0")]},
            r"SSPs that it was given, found kafka\.x\.0 too",
        ),
        (lambda previous, ssps: {"a": ssps, "b": []}, "an SSP in each task, found task b without one"),
        (lambda previous, ssps: {"../a": ssps}, "wanted a task name"),
        (lambda previous, ssps: {"Partition_0-1-2": ssps}, "without a key bucket"),
        (lambda previous, ssps: {3: ssps}, "it failed with|expected string"),
        (lambda previous, ssps: {"a": ["kafka.orders.0"]}, "TypeError: wanted SystemStreamPartitions"),
        (lambda previous, ssps: None, "it failed with AttributeError"),
        (lambda previous, ssps: 1 // 0, "it failed with ZeroDivisionError"),
        (lambda previous, ssps: sys.exit(7), "it failed with SystemExit: 7"),
        (
            lambda previous, ssps: raise_without_a_text(),
            "it failed with WithoutText: <its text cannot be made",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_with_the_setting_and_the_reason(answer, names):
    with pytest.raises(GrouperError, match=rf"grouper\.factory=own:Ssps: .*{names}"):
        planned(Ssps(answer))


def test_a_grouper_with_another_answer_the_second_time_is_refused():
    turns = itertools.count()

    with pytest.raises(GrouperError, match="equal answers to equal arguments"):
        planned(Ssps(lambda previous, ssps: {f"task{next(turns)}": ssps}))


def test_a_grouper_that_tears_keyed_state_is_refused_with_the_way_out():
    before = planned(Ssps(halves), **STORE)

    with pytest.raises(PartitionSchemeError, match=r"(?s)kafka\.orders\.1: wanted it in task low.*new job\.id"):
        planned(Ssps(lambda previous, ssps: {"low": ssps[:1], "high": ssps[1:]}), previous=before, **STORE)


def test_state_is_held_together_also_beside_an_input_that_came_later():
    before = planned(Ssps(halves), **STORE)
    both = a_config(task_inputs="kafka.clicks,kafka.orders", **OWN_SSPS, **STORE)

    def torn(previous, ssps):
        return {"clicks": ssps[:1], "low": ssps[1:2], "high": ssps[2:]}

    with pytest.raises(PartitionSchemeError, match=r"kafka\.orders\.1: wanted it in task low"):
        plan_job(
            both,
            {SystemStream("kafka", "clicks"): 1, ORDERS: 4},
            before,
            ["0"],
            groupers=Groupers(ssps=Ssps(torn)),
        )


def test_a_grouper_of_a_job_without_state_may_change_its_groups():
    before = planned(Ssps(halves))

    after = planned(Ssps(lambda previous, ssps: {"low": ssps[:1], "high": ssps[1:]}), previous=before)

    assert [("low", 1), ("high", 3)] == [(task.name, len(task.ssp_kbs)) for task in after.tasks]


def test_an_added_partition_must_join_the_task_that_its_keys_were_in():
    before = planned(Ssps(halves), **STORE)

    def modulo(previous, ssps):
        return {
            "low": [ssp for ssp in ssps if ssp.partition % 4 < 2],
            "high": [ssp for ssp in ssps if ssp.partition % 4 > 1],
        }

    with pytest.raises(PartitionSchemeError, match=r"kafka\.orders\.2: wanted it in task high"):
        planned(Ssps(halves), previous=before, count=8, **STORE)
    assert 2 == len(planned(Ssps(modulo), previous=before, count=8, **STORE).tasks)


@pytest.mark.parametrize("properties", [OWN_SSPS, OWN_TASKS])
def test_a_process_that_has_not_loaded_the_job_s_groupers_does_not_plan(properties):
    with pytest.raises(GrouperError, match="this process has not loaded one"):
        planned(**properties)


# --- tasks to processors ---


def all_on_the_last(tasks, processor_ids, previous_containers):
    return [ContainerModel(processor_id=processor_ids[-1], location_id="anywhere", tasks=tuple(tasks))]


def test_tasks_are_placed_by_the_job_s_own_grouper():
    grouper = Tasks(all_on_the_last)
    before = planned(tasks=grouper)
    after = planned(tasks=grouper, previous=before, processors=("10", "2"))

    assert [("0", 0), ("1", 4)] == [(one.processor_id, len(one.tasks)) for one in before.containers]
    assert [("2", 0), ("10", 4)] == [(one.processor_id, len(one.tasks)) for one in after.containers]
    assert {None} == {one.location_id for one in after.containers}
    assert (("2", "10"), before.containers) == grouper.asked[-1]


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (lambda tasks, ids, _: all_on_the_last(tasks[1:], ids, _), r"orders\.0 on a processor, found it on none"),
        (lambda tasks, ids, _: all_on_the_last(tasks, ["7"], _), "wanted processors 0, 1, found a container of 7"),
        (lambda tasks, ids, _: all_on_the_last(tasks, ids, _) * 2, "several of processor 1"),
        (
            lambda tasks, ids, _: [*all_on_the_last(tasks, ids, _), *all_on_the_last(tasks[:1], ids[:1], _)],
            r"orders\.0 on one processor, found it on 0 and 1",
        ),
        (
            lambda tasks, ids, _: all_on_the_last([replace(tasks[0], partition_id=9), *tasks[1:]], ids, _),
            r"a task SystemStreamPartition_kafka\.orders\.0 that is none of them",
        ),
        (lambda tasks, ids, _: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_an_answer_of_a_task_name_grouper_that_cannot_be_used_is_refused(answer, names):
    with pytest.raises(GrouperError, match=rf"task\.name\.grouper\.factory=own:Tasks: .*{names}"):
        planned(tasks=Tasks(answer))


# --- the older form ---


class WithoutPrevious:
    def group(self, ssps):
        return {"all": ssps}


class WithoutPreviousContainers:
    def group(self, tasks, processor_ids):
        return all_on_the_last(tasks, processor_ids, ())


def test_a_grouper_that_does_not_ask_for_the_previous_plan_works_with_a_warning():
    with pytest.warns(
        DeprecationWarning, match=r"line: group\(ssps\) is deprecated.*group\(previous, ssps\)"
    ) as warned:
        ssps = ssp_grouper_from(WithoutPrevious(), "line")
    with pytest.warns(DeprecationWarning, match=r"group\(tasks, processor_ids\) is deprecated"):
        tasks = task_name_grouper_from(WithoutPreviousContainers(), "line")

    plan = planned(ssps, tasks)

    assert [("1", ["all"])] == [(one.processor_id, [task.name for task in one.tasks]) for one in plan.containers[1:]]
    # Where the user's own code begins, so that Python shows it and the user finds it.
    assert __file__ == warned[0].filename


def test_a_grouper_of_the_present_form_is_not_warned_of():
    assert [("low", 2), ("high", 2)] == [
        (task.name, len(task.ssp_kbs)) for task in planned(ssp_grouper_from(Ssps(halves), "line")).tasks
    ]
    assert 4 == len(planned(tasks=task_name_grouper_from(Tasks(all_on_the_last), "line")).containers[1].tasks)


@pytest.mark.parametrize("made", [object(), type("Odd", (), {"group": lambda self, a, b, c, d: None})()])
def test_a_class_without_a_group_that_fits_is_refused(made):
    with pytest.raises(GrouperError, match=r"line: wanted .*group\(previous, ssps\)"):
        ssp_grouper_from(made, "line")
    with pytest.raises(GrouperError, match=r"line: wanted .*group\(tasks, processor_ids, previous_containers\)"):
        task_name_grouper_from(made, "line")
