"""The records of a term and a submission, and their order."""

import json
from dataclasses import replace

import pytest

from samzapy.config import differences, parse_config
from samzapy.coordinator.assignment.liveness import Liveness, Sighting
from samzapy.coordinator.assignment.replanning import replan
from samzapy.coordinator.commands import Figures, OwnTopicFound
from samzapy.coordinator.lifecycle.submission import check_joinable, start_term, submit_job
from samzapy.coordinator.state import INITIAL, committed, evolve, job_model
from samzapy.errors import (
    ConfigError,
    ExitCode,
    PartitionSchemeError,
    RejectedError,
    TopicIdentityError,
    TopicPolicyError,
    UnknownSchemaError,
)
from samzapy.model.container import ProcessorLocality, TaskLocality
from samzapy.model.grant import ChangelogStart
from samzapy.model.placement import StatusCode
from samzapy.model.topics import changelog_topic
from samzapy.plan.groupers import Groupers
from samzapy.plan.input_patterns import resolve_inputs
from samzapy.stream.records import (
    FORMAT_LEVEL,
    ChangelogPartitionPut,
    ConfigPut,
    ContainerCountPut,
    ContainerPut,
    FactorPut,
    FormatLevelPut,
    GenerationPut,
    GrantPut,
    LocalityPut,
    PlannedTaskPut,
    Removed,
    RequestPut,
    RunPut,
    TaskLocalityPut,
)
from samzapy.testing.builders import a_config, a_container, a_grant, a_submission
from unit_tests.fixtures.coordinator_histories import a_term
from unit_tests.fixtures.launched_job import a_move


def after(state, records):
    return evolve(state, committed(records, 100))


def with_a_term():
    return after(INITIAL, start_term(a_term(0), INITIAL))


def submitted(state, **kwargs):
    """The records of a submission without members; the first is for processor 0.

    Its first join would have the same record.
    """
    records = submit_job(a_submission(**kwargs), state, Liveness())
    if state.generation is not None:
        return records
    return (*records, *replan(after(state, records), ("0",)))


def kinds(records):
    types = [type(record) for record in records]
    return [kind for index, kind in enumerate(types) if index == 0 or types[index - 1] is not kind]


def test_a_plan_is_written_before_the_generation_that_makes_it_effective_and_others_removed_after_it():
    state = after(with_a_term(), submitted(with_a_term()))

    records = submitted(state, partition_counts={"kafka.orders": 5})

    assert [ChangelogPartitionPut, PlannedTaskPut, GenerationPut, Removed] == kinds(records[1:])
    assert {2} == {record.generation for record in records if isinstance(record, PlannedTaskPut)}
    assert [f"plan/1/task/SystemStreamPartition_kafka.orders.{n}" for n in range(4)] == [
        record.key for record in records if isinstance(record, Removed)
    ]


@pytest.mark.parametrize("count", range(1, 12))
def test_a_torn_submission_changes_no_plan_in_force_and_is_completed(count):
    state = after(with_a_term(), submitted(with_a_term()))
    records = submitted(state, partition_counts={"kafka.orders": 6})
    torn = after(state, records[:count])
    effective = any(isinstance(record, GenerationPut) for record in records[:count])
    assert (torn.plan == state.plan) is not effective

    completed = after(torn, submitted(torn, partition_counts={"kafka.orders": 6}))
    completed = after(completed, start_term(replace(a_term(1), term_before=1), completed))

    assert [6] == [completed.generation.task_count]
    assert {completed.generation.generation} == {number for number, _ in completed.planned_tasks}


def test_the_number_of_an_unfinished_plan_is_not_used_again():
    state = after(with_a_term(), submitted(with_a_term()))
    unfinished = replace(state.plan[0], generation=2)
    torn = after(state, [unfinished])
    # A new term must not remove it: it alone holds the number.
    torn = after(torn, start_term(a_term(1), torn))

    records = submitted(torn, partition_counts={"kafka.orders": 5})

    assert [3] == [record.generation for record in records if isinstance(record, GenerationPut)]
    assert {3} == {number for number, _ in after(torn, records).planned_tasks}


def test_a_new_term_removes_records_of_older_plans():
    state = after(with_a_term(), submitted(with_a_term()))
    records = submitted(state, partition_counts={"kafka.orders": 5})
    torn = after(state, [record for record in records if not isinstance(record, Removed)])

    assert {2} == {number for number, _ in after(torn, start_term(a_term(1), torn)).planned_tasks}


def test_removed_settings_get_tombstones_in_a_fixed_order():
    extra = {"task_hang_timeout_ms": "1", "job_id": "1", "job_shutdown_drain_ms": "1"}
    state = after(with_a_term(), submitted(with_a_term(), config=a_config(**extra)))

    records = submitted(state)

    assert sorted(f"config/{name.replace('_', '.')}" for name in extra) == [record.key for record in records]


def test_only_settings_that_changed_are_written():
    state = after(with_a_term(), submitted(with_a_term()))

    records = submitted(state, config=a_config(job_container_heartbeat_ms="500"))

    assert (ConfigPut(config_key="job.container.heartbeat.ms", value="500"),) == records


@pytest.mark.parametrize("is_read", [False, True])
def test_a_late_broker_takes_no_partitions_away(is_read):
    state = after(with_a_term(), submitted(with_a_term()))
    if is_read:
        state = after(state, [GrantPut(grant=a_grant())])

    assert () == submitted(state, partition_counts={"kafka.orders": 2})


@pytest.mark.parametrize(("expected", "actual"), [(1, 0), (0, 1), (2, 1)])
def test_a_plan_from_another_generation_is_not_applied(expected, actual):
    state = after(with_a_term(), submitted(with_a_term())) if actual else with_a_term()
    changed = a_config(task_partition_scheme="group-by-partition")

    with pytest.raises(
        RejectedError,
        match=f"(?s)planned from generation {expected} of flights-1, found generation {actual} .*job plan` again",
    ) as refused:
        submit_job(replace(a_submission(config=changed), expected_generation=expected), state, Liveness())
    assert ExitCode.REJECTED == refused.value.exit_code
    assert submit_job(replace(a_submission(config=changed), expected_generation=actual), state, Liveness())


def test_a_submission_that_expects_a_generation_decides_nothing_the_second_time():
    state = after(with_a_term(), submitted(with_a_term()))
    command = replace(
        a_submission(config=a_config(task_partition_scheme="group-by-partition")), expected_generation=1
    )
    records = submit_job(command, state, Liveness())
    assert any(isinstance(record, GenerationPut) for record in records)

    assert () == submit_job(command, after(state, records), Liveness())


def test_a_running_job_is_taken_over_whatever_was_planned_before():
    state = after(with_a_term(), submitted(with_a_term()))
    state = after(state, [ContainerPut(container=a_container(pid=2))])

    assert () == submit_job(replace(a_submission(), expected_generation=7), state, Liveness())


def test_a_topic_of_ours_with_two_partitions_is_refused():
    command = a_submission()
    topics = tuple(replace(topic, partition_count=2) for topic in command.own_topics)

    with pytest.raises(TopicPolicyError, match="wanted 1 partition, found 2"):
        submit_job(replace(command, own_topics=topics), with_a_term(), Liveness())


def test_a_partition_that_was_added_to_a_topic_of_ours_while_the_job_runs_is_left_to_the_looks_at_topics():
    state = after(with_a_term(), submitted(with_a_term()))
    command = a_submission()
    topics = tuple(replace(topic, partition_count=2) for topic in command.own_topics)

    assert () == submit_job(replace(command, own_topics=topics), state, Liveness())


def test_a_stream_of_a_newer_format_is_not_led():
    state = after(with_a_term(), [FormatLevelPut(level=FORMAT_LEVEL + 1)])

    with pytest.raises(UnknownSchemaError, match="newer release"):
        start_term(a_term(1), state)


def test_an_input_that_returns_is_still_known_by_its_topic():
    config = a_config(task_inputs="kafka.orders,kafka.refunds")
    state = after(with_a_term(), submitted(with_a_term(), config=config))
    without = after(state, submitted(state))
    assert 4 == len(without.plan)

    with_again = after(without, submitted(without, config=config))

    assert state.inputs == with_again.inputs
    assert [planned.partition_id for planned in state.plan] == [planned.partition_id for planned in with_again.plan]


def test_recorded_hosts_decide_where_the_task_of_a_lost_processor_runs():
    state = after(with_a_term(), submitted(with_a_term()))
    state = after(state, replan(state, ("0", "1")))
    gone = [planned.task_name for planned in state.plan if planned.processor_id == "1"]
    places = [LocalityPut(locality=ProcessorLocality(processor_id=f"{one}", host=f"host-{one}")) for one in (2, 3)]
    lost = TaskLocality(task_name=gone[0], processor_id="1", host="host-3")

    replanned = after(state, [*places, TaskLocalityPut(locality=lost)])
    replanned = after(replanned, replan(replanned, ("0", "2", "3")))

    assert "3" == next(planned.processor_id for planned in replanned.plan if planned.task_name == gone[0])


def test_state_that_was_kept_once_binds_also_after_its_store_is_gone_from_the_configuration():
    stateful = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
    first = a_submission(config=stateful)
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    state = with_a_term()
    state = after(state, submit_job(replace(first, own_topics=(*first.own_topics, changelog)), state, Liveness()))
    state = after(state, replan(state, ("0",)))
    state = after(state, submitted(state))  # The store is taken out...

    with pytest.raises(PartitionSchemeError, match="wanted a multiple of 4"):
        # ...and may come back, when its entries would be in the wrong tasks.
        submitted(state, partition_counts={"kafka.orders": 6})


def test_a_store_keeps_the_scope_under_which_it_was_filled():
    stateful = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    first = a_submission(config=stateful)
    first = replace(first, own_topics=(*first.own_topics, changelog))
    of_tasks = a_config(stores_seen_msg_serde="json", local_store_dir="/data", stores_seen_scope="task")
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    # Nothing was kept yet.
    assert submit_job(replace(first, config=of_tasks), state, Liveness())

    state = after(state, [GrantPut(grant=a_grant())])

    assert () == submit_job(first, state, Liveness())
    with pytest.raises(ConfigError, match=r"stores\.seen\.scope: wanted key, .* found task"):
        submit_job(replace(first, config=of_tasks), state, Liveness())


@pytest.mark.parametrize(
    ("before", "later_records", "reason"),
    [
        (
            {},
            {"stores_seen_kind": "map", "stores_seen_key_serde": "long"},
            r"stores\.seen\.kind: wanted value, .* found map",
        ),
        ({"stores_seen_kind": "map"}, {}, r"stores\.seen\.kind: wanted map, .* found value"),
        (
            {"stores_seen_kind": "map", "stores_seen_key_serde": "long"},
            {"stores_seen_kind": "map", "stores_seen_key_serde": "string,long"},
            r"stores\.seen\.key\.serde: wanted long, .* found string,long",
        ),
    ],
)
def test_the_kind_and_sub_keys_of_a_store_with_entries_cannot_change(before, later_records, reason):
    stateful = {"stores_seen_msg_serde": "json", "local_store_dir": "/data"}
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    first = a_submission(config=a_config(**stateful, **before))
    first = replace(first, own_topics=(*first.own_topics, changelog))
    changed = replace(first, config=a_config(**stateful, **later_records))
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    # Nothing was kept yet.
    assert submit_job(changed, state, Liveness())

    state = after(state, [GrantPut(grant=a_grant())])

    assert () == submit_job(first, state, Liveness())
    with pytest.raises(ConfigError, match=reason):
        submit_job(changed, state, Liveness())


def test_timers_that_may_be_set_cannot_be_left_out():
    timed = parse_config(
        {
            **a_config(local_store_dir="/data").properties,
            "stores._timers.kind": "timer",
            "stores._timers.key.serde": "bytes",
            "stores._timers.msg.serde": "bytes",
        }
    )
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "_timers"), topic_id="id", partition_count=4)
    first = a_submission(config=timed)
    first = replace(first, own_topics=(*first.own_topics, changelog))
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    # Nothing was kept yet.
    assert submit_job(replace(first, config=a_config()), state, Liveness())

    state = after(state, [GrantPut(grant=a_grant())])

    assert () == submit_job(first, state, Liveness())
    with pytest.raises(ConfigError, match=r"stores\._timers: wanted timers, .* found a task without"):
        submit_job(replace(first, config=a_config()), state, Liveness())


def test_a_store_with_task_scope_cannot_be_left_out():
    of_tasks = a_config(stores_seen_msg_serde="json", local_store_dir="/data", stores_seen_scope="task")
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    first = a_submission(config=of_tasks)
    first = replace(first, own_topics=(*first.own_topics, changelog))
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    # Nothing was kept yet.
    assert submit_job(replace(first, config=a_config()), state, Liveness())

    state = after(state, [GrantPut(grant=a_grant())])

    with pytest.raises(ConfigError, match=r"stores\.seen: wanted the store \(scope task\), .* found it left out"):
        submit_job(replace(first, config=a_config()), state, Liveness())


def test_a_store_is_dropped_on_request_and_does_not_return():
    stateful = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    first = a_submission(config=stateful)
    first = replace(first, own_topics=(*first.own_topics, changelog))
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    state = after(state, [GrantPut(grant=a_grant())])
    without, dropped = replace(first, config=a_config()), replace(first, config=a_config(stores_seen_drop="true"))

    with pytest.raises(ConfigError, match=r"stores\.seen: wanted the store .* stores\.seen\.drop=true"):
        submit_job(without, state, Liveness())

    state = after(state, submit_job(dropped, state, Liveness()))
    # The line may go then.
    state = after(state, submit_job(without, state, Liveness()))
    assert () == submit_job(without, state, Liveness())
    with pytest.raises(ConfigError, match=r"stores\.seen: wanted a store under a new name, found one that was left"):
        submit_job(first, state, Liveness())


def a_job_that_dropped_a_store():
    """The submission with the store, and the state after it was dropped."""
    stateful = a_config(stores_seen_msg_serde="json", local_store_dir="/data")
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=4)
    first = a_submission(config=stateful)
    first = replace(first, own_topics=(*first.own_topics, changelog))
    state = after(with_a_term(), submit_job(first, with_a_term(), Liveness()))
    state = after(state, [GrantPut(grant=a_grant())])
    return first, after(
        state, submit_job(replace(first, config=a_config(stores_seen_drop="true")), state, Liveness())
    )


def with_another_topic(submission):
    *others, changelog = submission.own_topics
    return replace(submission, own_topics=(*others, replace(changelog, topic_id="another", partition_count=8)))


def test_a_dropped_store_returns_empty_once_its_changelog_topic_is_another():
    first, state = a_job_that_dropped_a_store()

    state = after(state, submit_job(with_another_topic(first), state, Liveness()))

    changelog = state.own_topics[changelog_topic("flights-1", "seen")]
    assert ("another", 8) == (changelog.topic_id, changelog.partition_count)
    # From here on it is the job's.
    with pytest.raises(TopicIdentityError, match="changelog"):
        submit_job(first, state, Liveness())


def test_a_changelog_that_was_made_again_while_the_job_has_its_store_is_refused():
    first, state = a_job_that_dropped_a_store()
    state = after(state, submit_job(with_another_topic(first), state, Liveness()))

    with pytest.raises(TopicIdentityError, match="changelog"):
        submit_job(
            replace(first, config=a_config(stores_seen_msg_serde="string", local_store_dir="/data")),
            state,
            Liveness(),
        )


def test_a_dropped_store_does_not_return_into_a_run_that_counts_its_deleted_changelog_from_an_offset():
    first, state = a_job_that_dropped_a_store()
    begun = replace(a_grant(), epoch=9, counts_after=5, changelog_starts=(ChangelogStart(store="seen", offset=40),))
    run = RunPut(run_id="r", ended=False, epoch_before=5, counts_after=5)
    state = after(state, [run, GrantPut(grant=begun)])

    with pytest.raises(
        ConfigError, match=r"stores\.seen: wanted a store under a new name, .* from an offset of its deleted"
    ):
        submit_job(with_another_topic(first), state, Liveness())


def test_a_changed_scheme_is_a_new_generation_with_that_cause():
    state = after(with_a_term(), submitted(with_a_term()))

    records = submitted(state, config=a_config(task_partition_scheme="group-by-partition"))

    (generation,) = [record for record in records if isinstance(record, GenerationPut)]
    assert ("group-by-partition", 4) == (generation.scheme, generation.task_count)


def test_broadcast_inputs_are_recorded_with_each_task_and_as_inputs():
    config = a_config(task_broadcast_inputs="kafka.rules#[0-1]")

    state = after(with_a_term(), submitted(with_a_term(), config=config, partition_counts={"kafka.rules": 3}))

    assert {("kafka.rules.0", "kafka.rules.1")} == {tuple(map(str, task.broadcast_ssps)) for task in state.plan}
    assert ["kafka.orders", "kafka.rules"] == sorted(map(str, state.inputs))
    assert job_model(state).tasks[0].broadcast_ssps == state.plan[0].broadcast_ssps


def test_a_job_s_own_grouper_plans_and_is_recorded_by_its_name():
    class Ssps:
        def group(self, previous, ssps):
            return {"all": ssps}

    config = a_config(job_systemstreampartition_grouper_factory="own:Ssps")
    command = replace(a_submission(config=config), groupers=Groupers(ssps=Ssps()))

    state = after(with_a_term(), submit_job(command, with_a_term(), Liveness()))
    state = after(state, replan(state, ("0",), command.groupers))

    assert ["all"] == [task.task_name for task in state.plan]
    assert "own:Ssps" == state.generation.scheme
    assert () == submit_job(command, state, Liveness())


def test_a_changelog_without_a_partition_for_a_task_is_refused_with_the_command_that_adds_it():
    """Tasks came and went without a store, so their numbers exceed the input count."""
    state = after(with_a_term(), submitted(with_a_term()))
    for scheme in ("cogroup", "max"):
        state = after(state, submitted(state, config=a_config(task_partition_scheme=scheme)))
    config = a_config(stores_seen_msg_serde="json", local_store_dir="/data", task_partition_scheme="cogroup")
    submission = a_submission(config=config)
    changelog = OwnTopicFound(name=changelog_topic("flights-1", "seen"), topic_id="id", partition_count=7)

    with pytest.raises(
        TopicPolicyError, match=r"changelog-flights-1-seen with 8 partitions.*found 7.*--partitions 8"
    ):
        submit_job(replace(submission, own_topics=(*submission.own_topics, changelog)), state, Liveness())
    grown = replace(changelog, partition_count=8)
    assert submit_job(replace(submission, own_topics=(*submission.own_topics, grown)), state, Liveness())


# --- one configuration for all processors ---


def test_settings_of_one_process_are_neither_recorded_nor_compared():
    config = a_config(
        processor_id="7",
        local_store_dir="/x",
        job_coordinator_host="10.0.0.7",
        job_coordinator_port="8181",
        job_coordinator_insecure="true",
    )
    state = after(with_a_term(), submitted(with_a_term()))

    assert () == submitted(state, config=config)
    assert () == differences(config, state.config)


def test_a_process_of_another_configuration_is_refused_by_the_names_of_its_keys_while_the_job_runs():
    state = after(with_a_term(), submitted(with_a_term(), config=a_config(task_hang_timeout_ms="5")))
    state = after(state, [ContainerPut(container=a_container(processor_id="3", host="host-c"))])
    config = a_config(task_inputs="kafka.refunds", processor_id="9")

    with pytest.raises(RejectedError) as refused:
        check_joinable(state, config, running=["e1"])

    assert "3 on host-c" in str(refused.value)
    assert "task.hang.timeout.ms=(not set) instead of 5" in str(refused.value)
    assert "task.inputs=kafka.refunds instead of kafka.orders" in str(refused.value)
    assert "processor.id" not in str(refused.value)
    assert ExitCode.REJECTED == refused.value.exit_code


# --- the factor ---


def handed_in(state, **settings):
    return after(state, submitted(state, config=a_config(**settings)))


def test_a_first_factor_is_recorded_before_the_configuration_and_planned_by():
    records = submitted(with_a_term(), config=a_config(job_elasticity_factor="4"))

    assert FactorPut(factor=4) == records[0]
    state = after(with_a_term(), records)
    assert (4, {4}) == (state.generation.factor, {kb.factor for task in state.plan for kb in task.ssp_kbs})


def test_a_restart_does_not_undo_a_scaling():
    state = after(handed_in(with_a_term(), job_elasticity_factor="2"), [FactorPut(factor=8, uuid="u")])

    assert 8 == handed_in(state, job_elasticity_factor="2").factor.factor
    # A line that was removed has no effect either.
    assert 8 == handed_in(state).factor.factor


def test_a_factor_that_is_set_to_another_value_acts_also_back_to_1():
    state = handed_in(with_a_term(), job_elasticity_factor="2")
    assert 1 == handed_in(state, job_elasticity_factor="1").generation.factor

    scaled = after(handed_in(with_a_term()), [FactorPut(factor=8, uuid="u")])
    assert 1 == handed_in(scaled, job_elasticity_factor="1").generation.factor


@pytest.mark.parametrize(("count_asked", "is_ended"), [("3", True), ("5", False)])
def test_a_changed_container_count_fails_a_pending_scale_request(count_asked, is_ended):
    def hands_in(state, count):
        config = a_config(job_container_count=str(count))
        command = replace(a_submission(config=config), container_count=count, now_ms=7)
        return submit_job(command, state, Liveness())

    state = after(with_a_term(), hands_in(with_a_term(), 2))
    request = replace(
        a_move(StatusCode.IN_PROGRESS),
        action="scale",
        processor_id="",
        arguments=json.dumps({"containers": count_asked}),
    )

    records = hands_in(after(state, [request]), 5)

    ends = [(put.status_code, put.decided_at_ms) for put in records if isinstance(put, RequestPut)]
    assert ([(StatusCode.FAILED, 7)] if is_ended else []) == ends
    assert ContainerCountPut(count=5) in records


def test_a_factor_that_was_torn_from_its_configuration_acts_all_the_same():
    state = handed_in(with_a_term(), job_elasticity_factor="2")
    records = submitted(state, config=a_config(job_elasticity_factor="4"))

    for torn in range(1, len(records) + 1):
        again = handed_in(after(state, records[:torn]), job_elasticity_factor="4")
        assert (4, 4) == (again.factor.factor, again.generation.factor)


def test_a_changed_configuration_is_accepted_while_no_container_runs():
    state = after(with_a_term(), submitted(with_a_term()))

    check_joinable(state, a_config(task_hang_timeout_ms="5"), running=[])
    check_joinable(INITIAL, a_config(), running=["e1"])


def test_a_changed_secret_is_no_other_configuration():
    state = after(with_a_term(), submitted(with_a_term(), config=a_config(systems_kafka_client_sasl_password="a")))

    assert () == submitted(state, config=a_config(systems_kafka_client_sasl_password="b"))


def test_a_new_match_of_a_pattern_is_read_while_the_job_runs_without_a_new_setting():
    raw = a_config(task_inputs="kafka.~orders.*")
    resolved = resolve_inputs(raw, ["orders"])
    state = after(with_a_term(), submitted(with_a_term(), config=resolved))
    state = after(state, [ContainerPut(container=a_container())])
    more = resolve_inputs(raw, ["orders", "orders2"])
    liveness = Liveness(last={"e1": Sighting(at_ms=1, stream_offset=0, held=frozenset(), figures=Figures())})

    assert () == differences(raw, state.config) == differences(more, state.config)
    assert ["task.inputs"] == [
        difference.key for difference in differences(a_config(task_inputs="kafka.~orders"), state.config)
    ]
    assert 8 == len(after(state, submit_job(a_submission(config=more), state, liveness)).plan)


def test_an_intermediate_stream_is_recorded_as_an_input_and_as_a_topic_of_ours():
    config = a_config(task_intermediate_again_partitions="3")

    state = after(with_a_term(), submitted(with_a_term(), config=config))

    topic = config.intermediates[0].topic
    (topic_put,) = [put for stream, put in state.inputs.items() if stream.stream == topic]
    assert (3, 3) == (topic_put.partition_count, state.own_topics[topic].partition_count)
    assert topic_put.topic_id == state.own_topics[topic].topic_id
    assert 3 == sum(ssp_kb.ssp.stream == topic for task in state.plan for ssp_kb in task.ssp_kbs)


def test_an_intermediate_stream_cannot_be_submitted_with_fewer_partitions_than_before():
    before = a_config(task_intermediate_again_partitions="4")
    state = after(with_a_term(), submitted(with_a_term(), config=before))

    with pytest.raises(ConfigError, match=r"task\.intermediate\.again\.partitions: wanted at least 4"):
        submitted(state, config=a_config(task_intermediate_again_partitions="2"))
