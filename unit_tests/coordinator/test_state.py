"""The fold by example; the laws about it are in test_laws."""

from hypothesis import given
from hypothesis import strategies as st

from samzapy.coordinator.state import INITIAL, Committed, committed, evolve, job_model, latest, records_of, remembered
from samzapy.model.container import ProcessorLocality
from samzapy.stream.audit import event_name
from samzapy.stream.keys import key_of
from samzapy.stream.records import ConfigPut, GenerationPut, GrantPut, LocalityPut, Removed
from samzapy.testing.builders import a_grant
from unit_tests.coordinator.test_invariants import PUTS, placeless
from unit_tests.fixtures.coordinator_histories import Machine, run


@given(put=PUTS)
def test_a_tombstone_removes_a_record_of_any_kind(put):
    there = evolve(INITIAL, [Committed(0, put)])

    assert INITIAL == evolve(there, [Committed(1, Removed(key=key_of(put)))])
    assert INITIAL == evolve(INITIAL, [Committed(1, Removed(key=key_of(put)))])


@given(put=PUTS)
def test_every_record_has_an_event_before_and_after_it_is_known(put):
    there = evolve(INITIAL, [Committed(0, put)])

    assert latest(INITIAL, put) is None
    assert latest(there, put) in (None, put)
    assert event_name(put, latest(there, put))


def test_the_latest_record_is_that_of_the_same_key():
    state = evolve(INITIAL, [Committed(0, ConfigPut(config_key="a", value="1"))])

    assert ConfigPut(config_key="a", value="1") == latest(state, ConfigPut(config_key="a", value="2"))
    assert latest(state, ConfigPut(config_key="b", value="2")) is None


def test_the_older_state_is_unchanged():
    machine = run([])
    before = dict(machine.state.config)

    evolve(machine.state, [Committed(9, ConfigPut(config_key="new", value="1"))])

    assert before == machine.state.config


def test_the_state_knows_the_offset_of_its_plan_and_its_source():
    generation = GenerationPut(generation=1, factor=1, task_count=0, scheme="max", processor_ids=())

    state = evolve(INITIAL, committed([generation, ConfigPut(config_key="a", value="")], 40))

    assert (40, 42) == (state.generation_offset, state.offset_next)


@given(puts=st.lists(PUTS, max_size=8))
def test_a_state_is_the_fold_of_the_records_that_it_names(puts):
    """A kind of record that were forgotten there would be missing from every audit."""
    state = evolve(INITIAL, committed(puts, 0))

    again = evolve(INITIAL, committed(tuple(records_of(state)), 0))

    assert placeless(state) == placeless(again)
    assert len({key_of(put) for put in puts}) >= len(tuple(records_of(state)))


def test_there_is_no_job_model_before_the_first_plan():
    assert job_model(INITIAL) is None
    assert () == Machine().state.plan


def test_the_job_model_holds_hosts_and_tasks_in_the_order_of_their_numbers():
    ran = LocalityPut(locality=ProcessorLocality(processor_id="0", host="host-a"))

    model = job_model(evolve(run([]).state, [Committed(99, ran)]))

    assert [("0", "host-a")] == [(container.processor_id, container.location_id) for container in model.containers]
    assert [0, 1] == [task.partition_id for task in model.tasks]
    assert a_grant().task_name == model.tasks[0].name


def test_a_view_is_computed_once_per_state():
    made = []
    view = remembered(lambda current: made.append(current) or len(current.config))
    state = evolve(INITIAL, committed([ConfigPut(config_key="a", value="")], 0))

    views = [view(state), view(state), view(evolve(state, committed([ConfigPut(config_key="b", value="")], 1)))]

    assert [1, 1, 2] == views
    assert 2 == len(made)


def test_computed_views_do_not_affect_equality_of_states():
    first, second = a_grant(epoch=1), a_grant(epoch=2)
    state = evolve(INITIAL, committed([GrantPut(grant=second)], 0))

    assert (second,) == state.grants_sorted
    assert evolve(INITIAL, committed([GrantPut(grant=second)], 0)) == state
    assert (first, second) == evolve(state, committed([GrantPut(grant=first)], 1)).grants_sorted
