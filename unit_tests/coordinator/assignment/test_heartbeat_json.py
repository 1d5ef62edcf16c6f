"""A heartbeat is read exactly; any other body is refused with the field's name."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samzapy.coordinator.assignment.heartbeat_json import REASON_LENGTH_MAX, STEP_LENGTH_MAX, parse_heartbeat
from samzapy.coordinator.commands import Figures
from samzapy.coordinator.grant_values import Position
from samzapy.model.container import ContainerPhase
from samzapy.model.container_end import ContainerEnd
from samzapy.model.failing import Failing
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.store_size import StoreSize
from samzapy.model.task_stats import TaskStats
from samzapy.model.topics import OUTPUTS_NAMED_MAX
from samzapy.testing.builders import a_heartbeat, an_ssp_kb

BODY = {
    "job": "flights-1",
    "executionId": "e1",
    "processorId": "0",
    "host": "host-a",
    "bootId": "boot-a",
    "pid": 100,
    "processStartedMs": 5000,
    "slotCount": 2,
    "formatLevel": 1,
    "state": "RUNNING",
    "streamOffset": 42,
    "held": [{"task": "SystemStreamPartition_kafka.orders.3", "epoch": 7}],
    "figures": {"recordsIn": 3, "positions": {"kafka.orders.3:0/1": {"offsetNext": 100, "offsetEnd": 120}}},
}


def parsed(**changes):
    return parse_heartbeat(json.dumps(BODY | changes).encode(), received_ms=9)


def test_every_field_is_read():
    expected = a_heartbeat(
        stream_offset=42,
        held=[("SystemStreamPartition_kafka.orders.3", 7)],
        figures=Figures(records_in=3, positions={an_ssp_kb("kafka.orders.3:0/1"): Position(100, 120)}),
        received_ms=9,
    )

    assert expected == parsed()


def test_figures_may_be_left_out_and_unknown_fields_are_ignored():
    body = {key: value for key, value in BODY.items() if key != "figures"} | {"new": [1]}

    assert Figures() == parse_heartbeat(json.dumps(body).encode(), received_ms=0).figures


def test_a_position_is_in_a_tail_only_if_the_heartbeat_marks_it() -> None:
    positions = {
        f"kafka.orders.{number}:0/1": {"offsetNext": 1, "offsetEnd": 2} | field
        for number, field in enumerate([{"tailing": True}, {}, {"tailing": False}, {"tailing": "yes"}])
    }
    body = BODY | {"figures": {"positions": positions}}

    bucket_positions = parse_heartbeat(json.dumps(body).encode(), received_ms=0).figures.positions

    assert [True, False, False, False] == [bucket_positions[ssp_kb].tailing for ssp_kb in sorted(bucket_positions)]


def test_measures_are_read_of_each_task_and_of_the_others_together():
    figures = {
        **{"atMs": 1, "batchNs": 2, "inputNs": 3, "keyhashNs": 4, "offsetsRead": 5, "skipped": 6, "recoveries": 7},
        **{"restored": 10, "restoreTotal": 11, "restoreLeftMs": 12},
        "positions": {
            "kafka.orders.3:0/1": {"offsetNext": 100, "offsetEnd": 120, "recordsIn": 9, "bootstrapEnd": 110}
        },
        "tasks": {"Partition_3-1-4": {"busyNs": 8, "newer": "?"}},
        "otherTasks": {"count": 2, "busyNs": 9},
    }

    expected = Figures(
        at_ms=1,
        batch_ns=2,
        input_ns=3,
        keyhash_ns=4,
        offsets_read=5,
        skipped=6,
        recoveries=7,
        restored=10,
        restore_total=11,
        restore_left_ms=12,
        positions={an_ssp_kb("kafka.orders.3:0/1"): Position(100, 120, 9, 110)},
        tasks={"Partition_3-1-4": TaskStats(busy_ns=8)},
        other_tasks=TaskStats(busy_ns=9),
        other_task_count=2,
    )
    assert expected == parsed(figures=figures).figures


def test_a_heartbeat_may_have_the_sizes_of_stores():
    assert {} == parsed().figures.stores == parsed(figures={"stores": {}}).figures.stores
    sizes = {"sums": {"bytes": 8192, "entries": 90, "newer": "?"}, "<b>": {"bytes": 0, "entries": 0}}
    assert {
        "<b>": StoreSize(bytes_used=0, entries=0),
        "sums": StoreSize(bytes_used=8192, entries=90),
    } == parsed(figures={"stores": sizes}).figures.stores
    for wrong in ([], None, {"sums": 1}, {"sums": {"bytes": 1}}, {"sums": {"bytes": -1, "entries": 1}}):
        with pytest.raises(ValueError, match="stores"):
            parsed(figures={"stores": wrong})


def test_only_true_means_that_everything_was_read_to_its_end():
    finished = [
        parsed(**fields).finished for fields in ({}, {"finished": True}, {"finished": "yes"}, {"finished": 1})
    ]

    assert [False, True, False, False] == finished


def test_a_heartbeat_may_have_the_accepted_losses():
    words = ["kafka.orders.0:0/1@42-60", "kafka.rules.0@Partition_3@5-9"]

    assert words == [str(loss) for loss in parsed(acceptedLosses=words).accepted_losses]
    assert () == parsed().accepted_losses


def test_only_false_means_that_the_processor_does_not_return():
    comes_back = [
        parsed(**fields).comes_back for fields in ({}, {"comesBack": False}, {"comesBack": "no"}, {"comesBack": 0})
    ]

    assert [True, False, True, True] == comes_back


def test_a_heartbeat_may_have_the_progress_of_a_standby():
    assert None is parsed().warm
    warm_figures = {"tasks": 4, "level": 3, "lag": 120, "restored": 9, "total": 20, "atHand": 1}
    warm = StandbyProgress(tasks=4, level=3, lag=120, restored=9, total=20, at_hand=1)
    assert warm == parsed(warm=warm_figures).warm == parsed(warm=warm.as_json()).warm
    assert StandbyProgress(tasks=4) == parsed(warm={"tasks": 4, "news": 1}).warm
    assert [True, False] == [parsed(warm=fields).warm.is_query_warm for fields in ({}, {"rehearsed": False})]
    for wrong in ({"tasks": -1}, {"lag": "1"}, {"level": True}, [], {"total": 2**63}, {"rehearsed": 1}):
        with pytest.raises(ValueError, match="warm"):
            parsed(warm=wrong)


def test_a_query_that_fails_and_the_step_of_a_start_may_be_reported():
    assert (None, "") == (parsed().failing, parsed().step)
    failing = Failing(attempts=4, for_ms=30_000, left_ms=570_000, reason="no memory")
    heartbeat = parsed(failing=failing.as_json(), step="reading positions \ud800" + "x" * 600)
    assert failing == heartbeat.failing
    assert heartbeat.step.startswith("reading positions ?xxx")
    assert STEP_LENGTH_MAX == len(heartbeat.step)
    for wrong in ({"failing": []}, {"failing": {"attempts": -1}}, {"step": 7}):
        with pytest.raises(ValueError, match="failing|step"):
            parsed(**wrong)


def test_a_heartbeat_may_have_the_number_of_the_restart_order():
    assert (0, 7) == tuple(parsed(**fields).restart for fields in ({}, {"restart": 7}))
    with pytest.raises(ValueError, match="restart: wanted a whole number"):
        parsed(restart="7")


def test_a_heartbeat_may_have_the_exit_code():
    assert 8 == parsed(exitCode=8).exit_code
    assert 0 == parsed().exit_code
    with pytest.raises(ValueError, match="exitCode: wanted a whole number from 0 to 255, found 'eight'"):
        parsed(exitCode="eight")


def test_a_heartbeat_may_have_the_reason_of_the_end_and_those_of_earlier_ones():
    end = ContainerEnd(processor_id="0", execution_id="e1", host="host-a", exit_code=7, error="E", ended_at_ms=5)
    former = replace(end, processor_id="1", execution_id="e0")

    assert parsed(end=end.as_json(), formerEnds=[former.as_json()]).end == end
    assert parsed(formerEnds=[former.as_json()] * 30).former_ends == (former,) * 20
    # The container speaks of itself under its own ids.
    assert parsed(end=former.as_json()).end == end
    assert (parsed().end, parsed().former_ends) == (None, ())
    with pytest.raises(ValueError, match="offset: wanted a whole number, found 'three'"):
        parsed(end={**end.as_json(), "offset": "three"})


def test_a_heartbeat_may_have_how_long_the_broker_was_silent():
    assert (0, 0) == (parsed().unanswered_ms, parsed().kafka_silent_ms)
    heartbeat = parsed(unansweredMs=1500, kafkaSilentMs=40_000)
    assert (1500, 40_000) == (heartbeat.unanswered_ms, heartbeat.kafka_silent_ms)


def test_a_heartbeat_may_name_outputs():
    assert frozenset() == parsed().outputs == parsed(outputs=[]).outputs
    assert {"sums", "x" * 249} == parsed(outputs=["sums", "x" * 249, "sums"]).outputs


def test_a_heartbeat_names_a_bounded_number_of_outputs():
    names = [f"out-{number}" for number in range(OUTPUTS_NAMED_MAX + 1)]

    assert {*names[:-1]} == parsed(outputs=names).outputs


@pytest.mark.parametrize("wrong", ["", ".", "..", "a b", "a/b", "x" * 250, "\ud800", 1, None, ["sums"], {}])
def test_an_output_that_is_no_topic_is_refused_in_a_short_text(wrong):
    with pytest.raises(ValueError, match="each of outputs: wanted the name of a topic, found") as refused:
        parsed(outputs=["sums", wrong])

    assert len(str(refused.value)) < 200


def test_a_heartbeat_may_have_a_fault_domain():
    assert ("", "", "rack-1") == tuple(
        parsed(**fields).fault_domain for fields in ({}, {"faultDomain": ""}, {"faultDomain": "rack-1"})
    )


@pytest.mark.parametrize("field", [name for name in BODY if name != "figures"])
def test_each_other_field_is_required(field):
    body = {key: value for key, value in BODY.items() if key != field}

    with pytest.raises(ValueError, match=f"{field}: wanted .* found nothing"):
        parse_heartbeat(json.dumps(body).encode(), received_ms=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"executionId": "a/b"},
        {"executionId": ""},
        {"executionId": "x" * 129},
        {"host": "a b"},
        {"host": "\ud800"},
        {"faultDomain": "a b"},
        {"faultDomain": 1},
        {"pid": 0},
        {"pid": True},
        {"pid": 1.0},
        {"pid": "1"},
        {"slotCount": 513},
        {"streamOffset": -1},
        {"streamOffset": 2**63},
        {"state": "LOST"},
        {"state": ["RUNNING"]},
        {"held": None},
        {"held": ["x"]},
        {"held": [{"task": "t", "epoch": "7"}]},
        {"figures": {"positions": {"nonsense": {"offsetNext": 0, "offsetEnd": 0}}}},
        {"figures": {"recordsIn": None}},
        {"figures": {"tasks": []}},
        {"figures": {"tasks": {"a b": {}}}},
        {"figures": {"tasks": {"a": 1}}},
        {"figures": {"tasks": {"a": {"busyNs": "1"}}}},
        {"figures": {"otherTasks": {"count": -1}}},
        {"reason": 5},
        {"acceptedLosses": "kafka.orders.0@1-2"},
        {"acceptedLosses": [1]},
        {"outputs": "sums"},
        {"outputs": None},
        {"acceptedLosses": ["kafka.orders.0@2-1"]},
        {"acceptedLosses": ["kafka.orders.0:0/3@1-2"]},
        {"acceptedLosses": ["kafka.orders.0:0/512@1-2"]},
    ],
)
def test_a_field_out_of_its_range_is_refused(changes):
    with pytest.raises(ValueError, match="wanted"):
        parsed(**changes)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{",
        b'{"job": 1, "job": 2}',
        b'{"pid": NaN}',
        b'{"pid": 1e400}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"pid": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_body_that_is_no_heartbeat_is_refused(body):
    with pytest.raises(ValueError, match="wanted"):
        parse_heartbeat(body, received_ms=0)


@given(
    body=st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
@example(body=json.dumps(BODY).encode())
def test_no_body_raises_anything_but_a_value_error(body):
    with suppress(ValueError):
        parse_heartbeat(body, received_ms=0)


def test_a_long_or_unwritable_reason_is_shortened_and_made_writable():
    reason = parsed(state="STOPPED", reason="\ud800" + "x" * 5000).reason

    assert REASON_LENGTH_MAX == len(reason)
    assert "?" == reason.encode().decode()[0]


def test_the_state_is_one_that_a_container_may_report_of_itself():
    assert ContainerPhase.STOPPED is parsed(state="STOPPED").state
