"""What a term and a submission write, and in which order."""

from dataclasses import replace

import pytest

from samzapy.coordinator.commands import OwnTopicFound
from samzapy.coordinator.state import INITIAL, committed, evolve, job_model
from samzapy.coordinator.submission import start_term, submit_job
from samzapy.errors import PartitionSchemeError, TopicPolicyError, UnknownSchemaError
from samzapy.model.container import ProcessorLocality, TaskLocality
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import Groupers
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ChangelogPartitionPut,
    ConfigPut,
    FormatLevelPut,
    GenerationPut,
    LocalityPut,
    PlannedTaskPut,
    Removed,
    TaskLocalityPut,
)
from samzapy.testing.builders import a_config, a_submission
from unit_tests.coordinator.histories import a_term


def after(state, records):
    return evolve(state, committed(records, 100))


def in_office():
    return after(INITIAL, start_term(a_term(0), INITIAL))


def submitted(state, **kwargs):
    return submit_job(a_submission(**kwargs), state)


def kinds(records):
    found = [type(record) for record in records]
    return [kind for index, kind in enumerate(found) if index == 0 or found[index - 1] is not kind]


def test_a_plan_is_written_before_the_generation_that_makes_it_effective_and_others_removed_after_it():
    state = after(in_office(), submitted(in_office()))

    records = submitted(state, partition_counts={"kafka.orders": 5})

    assert [ChangelogPartitionPut, PlannedTaskPut, GenerationPut, Removed] == kinds(records[1:])
    assert {2} == {record.generation for record in records if isinstance(record, PlannedTaskPut)}
    assert [f"plan/1/task/SystemStreamPartition_kafka.orders.{n}" for n in range(4)] == [
        record.key for record in records if isinstance(record, Removed)
    ]


@pytest.mark.parametrize("count", range(1, 12))
def test_a_torn_submission_changes_no_plan_in_force_and_is_completed(count):
    state = after(in_office(), submitted(in_office()))
    records = submitted(state, partition_counts={"kafka.orders": 6})
    torn = after(state, records[:count])
    effective = any(isinstance(record, GenerationPut) for record in records[:count])
    assert (torn.plan == state.plan) is not effective

    completed = after(torn, submitted(torn, partition_counts={"kafka.orders": 6}))
    completed = after(completed, start_term(replace(a_term(1), term_before=1), completed))

    assert [6] == [completed.generation.task_count]
    assert {completed.generation.generation} == {number for number, _ in completed.planned_tasks}


def test_the_number_of_an_unfinished_plan_is_not_used_again():
    state = after(in_office(), submitted(in_office()))
    unfinished = replace(state.plan[0], generation=2)
    torn = after(state, [unfinished])
    # A new term must not remove it: it alone holds the number.
    torn = after(torn, start_term(a_term(1), torn))

    records = submitted(torn, partition_counts={"kafka.orders": 5})

    assert [3] == [record.generation for record in records if isinstance(record, GenerationPut)]
    assert {3} == {number for number, _ in after(torn, records).planned_tasks}


def test_a_new_term_removes_what_its_predecessor_left_of_older_plans():
    state = after(in_office(), submitted(in_office()))
    records = submitted(state, partition_counts={"kafka.orders": 5})
    torn = after(state, [record for record in records if not isinstance(record, Removed)])

    assert {2} == {number for number, _ in after(torn, start_term(a_term(1), torn)).planned_tasks}


def test_settings_that_are_no_more_are_removed_in_a_fixed_order():
    extra = {"processor_id": "7", "task_hang_timeout_ms": "1", "job_id": "1", "local_store_dir": "/x"}
    state = after(in_office(), submitted(in_office(), config=a_config(**extra), processor_ids=["0"]))

    records = submitted(state)

    assert sorted(f"config/{name.replace('_', '.')}" for name in extra) == [record.key for record in records]


def test_only_settings_that_changed_are_written():
    state = after(in_office(), submitted(in_office()))

    records = submitted(state, config=a_config(job_container_heartbeat_ms="500"))

    assert (ConfigPut(config_key="job.container.heartbeat.ms", value="500"),) == records


def test_a_refused_plan_is_refused_before_anything_is_written():
    state = after(in_office(), submitted(in_office()))

    with pytest.raises(PartitionSchemeError):
        submitted(state, partition_counts={"kafka.orders": 2})


def test_a_topic_of_ours_with_two_partitions_is_refused():
    command = a_submission()
    topics = tuple(replace(topic, partition_count=2) for topic in command.own_topics)

    with pytest.raises(TopicPolicyError, match="wanted 1 partition, found 2"):
        submit_job(replace(command, own_topics=topics), in_office())


def test_a_stream_of_a_newer_format_is_not_led():
    state = after(in_office(), [FormatLevelPut(level=FORMAT_LEVEL + 1)])

    with pytest.raises(UnknownSchemaError, match="newer release"):
        start_term(a_term(1), state)


def test_an_input_that_returns_is_still_known_by_its_topic():
    config = a_config(task_inputs="kafka.orders,kafka.refunds")
    state = after(in_office(), submitted(in_office(), config=config))
    without = after(state, submitted(state))
    assert 4 == len(without.plan)

    with_again = after(without, submitted(without, config=config))

    assert state.inputs == with_again.inputs
    assert [planned.partition_id for planned in state.plan] == [planned.partition_id for planned in with_again.plan]


def test_what_is_recorded_of_hosts_decides_where_a_task_goes_whose_processor_is_gone():
    state = after(in_office(), submitted(in_office(), processor_ids=["0", "1"]))
    gone = [planned.task_name for planned in state.plan if planned.processor_id == "1"]
    places = [LocalityPut(locality=ProcessorLocality(processor_id=f"{one}", host=f"host-{one}")) for one in (2, 3)]
    lost = TaskLocality(task_name=gone[0], processor_id="1", host="host-3")

    replanned = after(state, [*places, TaskLocalityPut(locality=lost)])
    replanned = after(replanned, submitted(replanned, processor_ids=["0", "2", "3"]))

    assert "3" == next(planned.processor_id for planned in replanned.plan if planned.task_name == gone[0])


def test_state_that_was_kept_once_binds_also_after_its_store_is_gone_from_the_configuration():
    stateful = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
    first = a_submission(config=stateful)
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    state = in_office()
    state = after(state, submit_job(replace(first, own_topics=(*first.own_topics, changelog)), state))
    state = after(state, submitted(state))  # The store is taken out...

    with pytest.raises(PartitionSchemeError, match="wanted a multiple of 4"):
        # ...and may come back, when its entries would be in the wrong tasks.
        submitted(state, partition_counts={"kafka.orders": 6})


def test_a_changed_scheme_is_a_new_generation_that_says_so():
    state = after(in_office(), submitted(in_office()))

    records = submitted(state, config=a_config(task_partition_scheme="group-by-partition"))

    (generation,) = [record for record in records if isinstance(record, GenerationPut)]
    assert ("group-by-partition", 4) == (generation.scheme, generation.task_count)


def test_broadcast_inputs_are_recorded_with_each_task_and_as_inputs():
    config = a_config(task_broadcast_inputs="kafka.rules#[0-1]")

    state = after(in_office(), submitted(in_office(), config=config, partition_counts={"kafka.rules": 3}))

    assert {("kafka.rules.0", "kafka.rules.1")} == {tuple(map(str, task.broadcast_ssps)) for task in state.plan}
    assert ["kafka.orders", "kafka.rules"] == sorted(map(str, state.inputs))
    assert job_model(state).tasks[0].broadcast_ssps == state.plan[0].broadcast_ssps


def test_a_job_s_own_grouper_plans_and_is_recorded_by_its_name():
    class Ssps:
        def group(self, previous, ssps):
            return {"all": ssps}

    config = a_config(job_systemstreampartition_grouper_factory="own:Ssps")
    command = replace(a_submission(config=config), groupers=Groupers(ssps=Ssps()))

    state = after(in_office(), submit_job(command, in_office()))

    assert ["all"] == [task.task_name for task in state.plan]
    assert "own:Ssps" == state.generation.scheme
    assert () == submit_job(command, state)
