"""`samzapy job plan` without a cluster: golden output, the way back, refusals."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from samzapy.cli.job.group import job
from samzapy.cli.job.plan_table import print_change
from samzapy.cli.job.planning import Known, with_previous
from samzapy.cli.job.scale import expected_text
from samzapy.errors import ConfigError, MissingTopicError, PartitionSchemeError
from samzapy.model.container import Locality
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.job_plan import Recorded, plan_job
from samzapy.plan.plan_change import StateSize, plan_change
from samzapy.testing.builders import a_config

GOLDEN = Path(__file__).parent.parent / "golden"
PROPERTIES = """\
job.name=flights
task.inputs=kafka.flights,kafka.planes
systems.kafka.bootstrap.servers=localhost:1
systems.kafka.client.sasl.password=canary
stores.seen.msg.serde=json
local.store.dir=/data
"""
COUNTS = ["--partitions", "kafka.flights=3,planes=2"]


@pytest.fixture
def properties(tmp_path):
    path = tmp_path / "flights.properties"
    path.write_text(PROPERTIES)
    return path


def invoke_plan(properties, *options):
    result = CliRunner().invoke(job, ["plan", "--config", str(properties), *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def a_plan_of(task_name, system="kafka"):
    ssps = [{"system": system, "stream": "flights", "partition": 0}]
    task = {"task-name": task_name, "mode": "active", "partition": 0, "changelog-partition": 0}
    task["system-stream-partitions"] = ssps
    return {
        "generation": 1,
        "config": {},
        "containers": [{"processor-id": "0", "location-id": None, "tasks": [task]}],
    }


def a_first_plan(properties, tmp_path):
    first = invoke_plan(properties, *COUNTS, "--processors", "0@host-a,1@host-b", "-o", "json")
    path = tmp_path / "first.json"
    path.write_text(first.stdout)
    return path


def test_a_first_plan_as_json_is_the_golden_one(properties):
    result = invoke_plan(properties, *COUNTS, "--processors", "0@host-a,1@host-b", "-o", "json")

    assert (GOLDEN / "job_plan_first.json").read_text() == result.stdout
    assert "canary" not in result.stdout


def test_without_a_cluster_a_new_job_restores_nothing_and_a_changed_one_an_unknown_size(properties, tmp_path):
    previous = ["--previous", str(a_first_plan(properties, tmp_path))]
    asking = [*COUNTS, "--processors", "0@host-a,1@host-b"]

    assert "to restore: nothing; to copy on the host: nothing" in invoke_plan(properties, *asking).stdout
    moved = invoke_plan(properties, *COUNTS, "--processors", "2@host-c", *previous)
    assert "to restore: unknown" in moved.stdout


def test_a_change_as_a_table_is_the_golden_one(properties, tmp_path):
    previous = a_first_plan(properties, tmp_path)

    result = invoke_plan(
        properties, *COUNTS, "--previous", str(previous), "--processors", "0@host-a,2@host-b,3@host-c"
    )

    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert (GOLDEN / "job_plan_change.txt").read_text().splitlines() == lines


def test_the_output_can_be_the_previous_plan_and_then_nothing_moves(properties, tmp_path):
    previous = a_first_plan(properties, tmp_path)

    output = json.loads(invoke_plan(properties, *COUNTS, "--previous", str(previous), "-o", "json").stdout)

    totals = {"stays": 5, "moves": 0, "splits": 0, "merges": 0, "new": 0, "gone": 0}
    totals |= {"restoreRecordsMax": 0, "restoreBytesAbout": 0, "copyBytesAbout": 0, "expectedPauseMs": 0}
    assert (1, 2, totals) == (output["fromGeneration"], output["jobModel"]["generation"], output["totals"])
    # The bare job model, as GET /jobModel gives it, does as well.
    previous.write_text(json.dumps(json.loads(previous.read_text())["jobModel"]))
    again = json.loads(invoke_plan(properties, *COUNTS, "--previous", str(previous), "-o", "json").stdout)
    assert output == again


def test_a_job_that_was_scaled_since_it_was_handed_in_is_planned_by_the_factor_of_its_plan(properties, tmp_path):
    scaled = invoke_plan(properties, *COUNTS, "--set", "job.elasticity.factor=2", "-o", "json")
    path = tmp_path / "scaled.json"
    plan = json.loads(scaled.stdout)["jobModel"]
    del plan["config"]["job.elasticity.factor"]
    path.write_text(json.dumps(plan))
    previous = ["--previous", str(path)]

    output = json.loads(invoke_plan(properties, *COUNTS, *previous, "-o", "json").stdout)["totals"]

    assert (10, 0, 0) == (output["stays"], output["merges"], output["gone"])
    # Another factor in the configuration than when it was handed in is a change.
    anew = ["--set", "job.elasticity.factor=4"]
    assert (
        20 == json.loads(invoke_plan(properties, *COUNTS, *previous, *anew, "-o", "json").stdout)["totals"]["splits"]
    )
    plan["config"]["job.elasticity.factor"] = "1"
    path.write_text(json.dumps(plan))
    same = ["--set", "job.elasticity.factor=1"]
    assert (
        10 == json.loads(invoke_plan(properties, *COUNTS, *previous, *same, "-o", "json").stdout)["totals"]["stays"]
    )


def test_other_records_of_the_cluster_count_beside_a_plan_from_a_file():
    orders, refunds = SystemStream("kafka", "orders"), SystemStream("kafka", "refunds")
    recorded = plan_job(a_config(), {orders: 1}, None, ["0"], factor=2)
    known = Known(
        partition_counts={orders: 1},
        previous=recorded,
        locality=Locality(processors={"0": "host-a"}),
        connection=None,
        recorded=Recorded(
            changelog_partitions={"SystemStreamPartition_kafka.orders.0": 0},
            keeps_state=True,
            tasks_before={SystemStreamPartition("kafka", "refunds", 0): "SystemStreamPartition_kafka.refunds.0"},
            gone=(refunds,),
        ),
        factor=2,
    )
    previous = replace(recorded, generation=7)

    previous_plan = with_previous(known, previous, a_config())

    assert replace(known, previous=previous, locality=Locality()) == previous_plan
    # A job that never ran: the file is all that there is.
    stateless = replace(known.recorded, keeps_state=False)
    of_file = with_previous(replace(known, previous=None, factor=1, recorded=stateless), previous, a_config())
    assert (2, None) == (of_file.factor, of_file.recorded.keeps_state)


@pytest.mark.parametrize(
    ("size", "shown", "pause"),
    [
        (StateSize(9, 100_000_000), ("copy ~50000000 bytes", "on the host: ~100000000 bytes"), "about 2.1 s"),
        (None, ("copy unknown", "to copy on the host: unknown"), "unknown"),
    ],
)
def test_a_split_on_its_host_shows_the_copied_size_and_the_expected_pause(size, shown, pause, capsys):
    counts, hosts = {SystemStream("kafka", "orders"): 1}, {"0": "host-a"}
    before = plan_job(a_config(), counts, None, ["0"], locality=Locality(processors=hosts))
    locality = Locality(processors=hosts, tasks={task.name: "host-a" for task in before.tasks})
    after = plan_job(a_config(), counts, before, ["0"], locality=locality, factor=2)
    change = plan_change(before, after, locality, lambda _: size)

    print_change("flights-1", change)

    printed = capsys.readouterr().out
    assert [True, True] == [text in printed for text in shown]
    assert f"expected pause of a key: {pause} (" in expected_text(change.expected_pause_ms)


GROWN = ["--partitions", "kafka.flights=6,planes=2"]


def test_new_partitions_of_a_read_input_are_shown_as_waiting(properties, tmp_path):
    previous = ["--previous", str(a_first_plan(properties, tmp_path))]

    output = json.loads(invoke_plan(properties, *GROWN, *previous, "-o", "json").stdout)

    assert ["kafka.flights.3", "kafka.flights.4", "kafka.flights.5"] == output["waiting"]
    notice = "not at once: new partitions of kafka.flights (3, 4, 5) wait until the old ones are read to their ends"
    assert notice in invoke_plan(properties, *GROWN, *previous).stdout
    # Nothing waits where nothing is read yet: the job's first plan, and a stream that is new.
    assert "not at once" not in invoke_plan(properties, *GROWN).stdout
    more = [
        "--set",
        "task.inputs=kafka.flights,kafka.planes,kafka.trains",
        "--partitions",
        "flights=3,planes=2,trains=1",
    ]
    assert [] == json.loads(invoke_plan(properties, *more, *previous, "-o", "json").stdout)["waiting"]


def test_new_partitions_of_a_bounded_job_do_not_wait(properties, tmp_path):
    previous = ["--previous", str(a_first_plan(properties, tmp_path))]
    bounded = ["--set", "systems.kafka.samza.offset.end=head"]

    assert [] == json.loads(invoke_plan(properties, *GROWN, *bounded, *previous, "-o", "json").stdout)["waiting"]


def test_without_processors_the_one_of_the_configuration_is_planned_for(properties):
    output = json.loads(invoke_plan(properties, *COUNTS, "-o", "json").stdout)

    assert ["0"] == [container["processor-id"] for container in output["jobModel"]["containers"]]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--partitions", "kafka.flights=3"], "found none for kafka.planes"),
        (["--partitions", "kafka.flights=0,kafka.planes=1"], "found 'kafka.flights=0'"),
        (["--partitions", "kafka.flights"], "wanted STREAM=N"),
        (["--partitions", "kafka.flights=100001,planes=1"], "N from 1 to 100000.*found 'kafka.flights=100001'"),
        (["--partitions", f"kafka.flights={'9' * 5000},planes=1"], "N from 1 to 100000"),
        (["--partitions", "kafka.trains=3"], "found kafka.trains"),
        (["--partitions", "flights=3,kafka.flights=3"], "found it twice"),
        ([*COUNTS, "--processors", "0@,1"], "found '0@'"),
        ([*COUNTS, "--processors", "0,0"], "each processor once"),
        ([*COUNTS, "--processors", ","], "at least one"),
        ([*COUNTS, "--processors", "a-1-4,b"], "wanted an id as processor.id has it.*found 'a-1-4'"),
        ([*COUNTS, "--processors", "../x"], r"found '\.\./x'"),
        ([*COUNTS, "--processors", "a b"], "found 'a b'"),
        ([*COUNTS, "--processors", "0@h 1"], "found 'h 1'"),
        ([*COUNTS, "--processors", "0@a@b"], "found 'a@b'"),
        ([*COUNTS, "--previous", "/nowhere.json"], "No such file"),
    ],
)
def test_invalid_options_are_refused_with_a_named_error(properties, options, names):
    with pytest.raises(ConfigError, match=names):
        invoke_plan(properties, *options)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{", "Expecting"),
        ("[]", "generation: wanted int, found nothing"),
        ('{"generation": true, "config": {}, "containers": []}', "generation: wanted int, found True"),
        (
            '{"generation": 1, "config": {}, "containers": [{"processor-id": "0", "location-id": 3, "tasks": []}]}',
            "location-id",
        ),
        (json.dumps(a_plan_of("a/b")), "wanted a task name.*'a/b'"),
        (json.dumps(a_plan_of("Partition_0", system="")), "wanted a system without dots"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_a_named_error(properties, tmp_path, text, names):
    path = tmp_path / "previous.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=f"(?s)--previous.*{names}"):
        invoke_plan(properties, *COUNTS, "--previous", str(path))


def test_a_plan_that_would_leave_state_behind_is_refused_as_a_submission_would_be(properties, tmp_path):
    previous = a_first_plan(properties, tmp_path)

    with pytest.raises(PartitionSchemeError, match=r"kafka\.planes"):
        invoke_plan(properties, "--partitions", "kafka.flights=3,kafka.planes=1", "--previous", str(previous))


def test_a_plan_that_would_leave_positions_behind_is_refused_as_a_submission_would_be(properties, tmp_path):
    properties.write_text(PROPERTIES.partition("stores.")[0])
    previous = a_first_plan(properties, tmp_path)
    moved = ["--set", "task.inputs=kafka.flights", "--set", "task.broadcast.inputs=kafka.planes"]

    with pytest.raises(PartitionSchemeError, match=r"kafka\.planes: wanted it divided .* found it read as a whole"):
        invoke_plan(properties, *COUNTS, *moved, "--previous", str(previous))


def test_a_pattern_matches_the_given_streams(properties):
    inputs = ["--set", "task.inputs=kafka.~fl.*"]

    output = json.loads(invoke_plan(properties, *inputs, "--partitions", "flights=1,floats=1", "-o", "json").stdout)

    assert "kafka.flights,kafka.floats" == output["jobModel"]["config"]["task.inputs"]
    with pytest.raises(ConfigError, match="found kafka.planes"):
        invoke_plan(properties, *inputs, *COUNTS)
    with pytest.raises(MissingTopicError, match="kafka.~fl"):
        invoke_plan(properties, *inputs, "--partitions", "kafka.planes=2")


def test_an_intermediate_stream_has_the_partitions_of_the_configuration_unless_others_are_given(properties):
    again = ["--set", "task.intermediate.again.partitions=2"]

    planned = json.loads(invoke_plan(properties, *COUNTS, *again, "-o", "json").stdout)
    given = [*COUNTS[:1], f"{COUNTS[1]},kafka.__samzapy-intermediate-flights-1-again=4"]
    of_another_count = json.loads(invoke_plan(properties, *given, *again, "-o", "json").stdout)

    assert 3 + 2 + 2 == planned["totals"]["new"]
    assert 3 + 2 + 4 == of_another_count["totals"]["new"]
