"""The built-in ways from partitions to tasks, and the answers of Samza's classes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import ConfigError, PartitionSchemeError
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.plan.groupers import group_ssps
from samzapy.plan.job_plan import numbered_tasks, plan_job
from samzapy.plan.partition_schemes import GROUPERS, AllSspsToSingleTask, partition_counts_of
from samzapy.testing.builders import a_config
from unit_tests.fixtures.samza_names import cases, our_mapping, our_name, our_ssp, our_ssp_kb

IS1, IS2 = SystemStream("kafka", "IS1"), SystemStream("kafka", "IS2")
SCHEMES = sorted(GROUPERS)


def table(plan):
    """As in SAMZA-71: the StreamTask number of each `stream:partition`."""
    return {f"{kb.ssp.stream}:{kb.ssp.partition}": task.partition_id for task in plan.tasks for kb in task.ssp_kbs}


def ssps_of(counts):
    return [SystemStreamPartition("kafka", stream, p) for stream, count in counts.items() for p in range(count)]


def grouped(scheme, previous, counts):
    """Partition numbers by task, as text: `{"Partition_0": "a.0 b.0"}`."""
    tasks = group_ssps(GROUPERS[scheme](), "scheme", previous, ssps_of(counts))
    return {group.task_name: " ".join(f"{ssp.stream}.{ssp.partition}" for ssp in group.ssps) for group in tasks}


def mapping_of(scheme, counts, previous=None):
    groups = group_ssps(GROUPERS[scheme](), "scheme", previous or {}, ssps_of(counts))
    return {ssp: group.task_name for group in groups for ssp in group.ssps}


# --- SAMZA-71 ---


def test_seed_003_s_table_of_scheme_max():
    plan = plan_job(a_config(task_inputs="kafka.IS2,kafka.IS1"), {IS1: 4, IS2: 8}, None, ["0"])

    expected = [("IS2", p) for p in range(8)] + [("IS1", p) for p in range(4)]
    assert {f"{stream}:{p}": number for number, (stream, p) in enumerate(expected)} == table(plan)
    assert plan.tasks[0].name == "SystemStreamPartition_kafka.IS2.0"
    assert plan.tasks[11].name == "SystemStreamPartition_kafka.IS1.3"


def test_seed_003_s_table_of_scheme_cogroup():
    config = a_config(task_inputs="kafka.IS1,kafka.IS2", task_partition_scheme="cogroup")

    plan = plan_job(config, {IS1: 8, IS2: 12}, None, ["0"])

    expected = {f"IS1:{p}": p % 4 for p in range(8)} | {f"IS2:{p}": p % 4 for p in range(12)}
    assert expected == table(plan)
    assert ["Partition_0", "Partition_1", "Partition_2", "Partition_3"] == [task.name for task in plan.tasks]


@pytest.mark.parametrize(("counts", "tasks"), [((4, 8), 4), ((4, 6), 2), ((3, 5), 1), ((7, 7), 7)])
def test_cogroup_makes_as_many_tasks_as_the_greatest_common_divisor(counts, tasks):
    assert tasks == len(grouped("cogroup", {}, {"IS1": counts[0], "IS2": counts[1]}))


@given(hashed=st.integers(0, 2**31 - 1), counts=st.lists(st.integers(1, 24), min_size=1, max_size=3))
def test_under_cogroup_a_key_of_any_input_is_in_one_task(hashed, counts):
    tasks = mapping_of("cogroup", {f"in{index}": count for index, count in enumerate(counts)})

    tasks_of_key = {tasks[SystemStreamPartition("kafka", f"in{i}", hashed % count)] for i, count in enumerate(counts)}
    assert len(tasks_of_key) == 1


# --- Samza's worked examples (GroupByPartition's own unit tests) ---

A0, A1, A2, B1, B2, C0 = (
    ("StreamA", 0),
    ("StreamA", 1),
    ("StreamA", 2),
    ("StreamB", 1),
    ("StreamB", 2),
    ("StreamC", 0),
)


@pytest.mark.parametrize(
    ("ssps", "broadcast", "expected"),
    [
        ([A0, A1, A2, B1, B2, C0], [], {0: [A0, C0], 1: [A1, B1], 2: [A2, B2]}),
        ([A0, A1, A2, B1, B2, C0], [A0, B1], {0: [A0, B1, C0], 1: [A0, A1, B1], 2: [A0, A2, B1, B2]}),
        ([A0, B1, B2], [A0, B1], {2: [A0, B1, B2]}),
    ],
    ids=["plain", "broadcast", "partitions with broadcast inputs only make no task"],
)
def test_the_worked_examples_of_group_by_partition(ssps, broadcast, expected):
    def made(pairs):
        return [SystemStreamPartition("SystemA", stream, partition) for stream, partition in pairs]

    divided = [ssp for ssp in made(ssps) if ssp not in made(broadcast)]
    groups = group_ssps(GROUPERS["group-by-partition"](), "scheme", {}, divided)

    tasks = numbered_tasks(groups, tuple(made(broadcast)), {})

    inputs = {task.name: sorted([*(kb.ssp for kb in task.ssp_kbs), *task.broadcast_ssps]) for task in tasks}
    assert {f"Partition_{number}": made(pairs) for number, pairs in expected.items()} == inputs


# --- the answers of Samza 1.8 ---

# A factor is a power of two, so that bucket b of F splits into b and b+F of 2F. Samza takes 3 and 17.
NO_FACTOR = ("3", "17", "0", "-1", "x")


@pytest.mark.parametrize("case", cases("group_ssp.jsonl", "group_ssp"), ids=lambda case: case["id"])
def test_samza_groups_equally(case):
    config, ssps = case["in"]["config"], [our_ssp(fields) for fields in case["in"]["ssps"]]
    if case["in"]["grouper"] == "all":
        assert_equal_to_all_ssps_to_single_task(case, config, ssps)
        return
    broadcast = broadcast_ssps(config)
    scheme = SCHEME_OF[case["in"]["grouper"]]
    groups = group_ssps(GROUPERS[scheme](), "scheme", {}, [ssp for ssp in ssps if ssp not in broadcast])
    factor = config.get("job.elasticity.factor", "1")
    if factor in NO_FACTOR:
        with pytest.raises(ValueError, match="factor that is a power of two|invalid literal"):
            numbered_tasks(groups, broadcast, {}, int(factor))
        return

    tasks = numbered_tasks(groups, broadcast, {}, int(factor))

    expected = {
        our_name(name, int(factor)): (
            {our_ssp_kb(fields, int(factor)) for fields in ssps if our_ssp(fields) not in broadcast},
            {our_ssp(fields) for fields in ssps if our_ssp(fields) in broadcast},
        )
        for name, ssps in case["out"].items()
    }
    assert expected == {task.name: (set(task.ssp_kbs), set(task.broadcast_ssps)) for task in tasks}


def assert_equal_to_all_ssps_to_single_task(case, config, ssps):
    if config.get("task.broadcast.inputs"):
        assert "ConfigException" == case["out"]["error"]
        with pytest.raises(ConfigError, match="each task reads every input"):
            a_config(task_partition_scheme="all-ssps-to-single-task", task_broadcast_inputs="kafka.rules#0")
        return
    if not ssps:
        # A topic without partitions does not exist in Kafka.
        assert "error" in case["out"]
        return
    groups = AllSspsToSingleTask(config["processor.list"].split(",")).group({}, ssps)
    assert {our_name(name, 1): {our_ssp(f) for f in tasks} for name, tasks in case["out"].items()} == {
        task: set(members) for task, members in groups.items()
    }


def broadcast_ssps(config):
    """The broadcast SSPs, without the planner.

    It refuses a stream that is input and broadcast in one, which Samza allows. See
    `test_a_stream_that_samza_broadcasts_in_part_is_refused`.
    """
    text = config.get("task.broadcast.inputs", "")
    if not text:
        return ()
    systems = {item.split(".")[0].strip() for item in text.split(",")}
    (system,) = systems
    job_config = a_config(
        job_default_system=system,
        task_inputs=f"{system}.unused",
        task_broadcast_inputs=text,
        **{f"systems_{system}_bootstrap_servers": "localhost:9092"},
    ).broadcast_inputs
    return tuple(
        SystemStreamPartition(system, item.system_stream.partition(".")[2], partition)
        for item in job_config
        for partition in item.partitions
    )


SCHEME_OF = {"partition": "group-by-partition", "ssp": "group-by-ssp"}


def divided_of(case):
    """The SSPs of a case that one task gets, and not all."""
    broadcast = broadcast_ssps(case["in"]["config"])
    return [ssp for ssp in sorted(our_ssp(fields) for fields in case["in"]["ssps"]) if ssp not in broadcast]


def handed_in(case):
    """The configuration of the job of a recorded case, as it would be handed in here."""
    divided, given = divided_of(case), case["in"]["config"]
    system = case["in"]["ssps"][0][0]
    store = {"stores_seen_msg_serde": "json", "local_store_dir": "/data"} if "stores.st.factory" in given else {}
    return a_config(
        job_default_system=system,
        task_inputs=",".join(sorted({str(ssp.system_stream) for ssp in divided})),
        task_broadcast_inputs=given.get("task.broadcast.inputs", ""),
        task_partition_scheme=SCHEME_OF[case["in"]["grouper"]],
        **{f"systems_{system}_bootstrap_servers": "localhost:9092"},
        **store,
    )


def is_broadcast_in_part(case):
    streams = {ssp.system_stream for ssp in divided_of(case)}
    return any(ssp.system_stream in streams for ssp in broadcast_ssps(case["in"]["config"]))


RECORDED = [*cases("group_ssp.jsonl", "group_ssp"), *cases("ssp_proxy.jsonl", "ssp_proxy")]
BROADCAST_IN_PART = [case for case in RECORDED if case["in"]["grouper"] in SCHEME_OF and is_broadcast_in_part(case)]


@pytest.mark.parametrize("case", BROADCAST_IN_PART, ids=lambda case: case["id"])
def test_a_stream_that_samza_broadcasts_in_part_is_refused(case):
    """A stream is either divided or broadcast, on purpose unlike in Samza.

    See docs/guides/planning.md.
    """
    with pytest.raises(ConfigError, match=r"task\.broadcast\.inputs: .* is in task\.inputs too"):
        handed_in(case)


def test_several_recorded_cases_broadcast_a_stream_in_part():
    assert len(BROADCAST_IN_PART) >= 15


# Our deliberate answers where Samza throws: the whole stream, and job.default.system as everywhere else.
READ_HERE = {"kafka.b": ("kafka.b", None), "nodot#1": ("kafka.nodot", (1,))}


@pytest.mark.parametrize("case", cases("group_ssp.jsonl", "broadcast"), ids=lambda case: case["id"])
def test_samza_reads_broadcast_inputs_equally(case):
    text = case["in"]["config"].get("task.broadcast.inputs", "")
    if text == "kafka.b#[2-0]":
        # Samza warns and reads nothing; here nothing is skipped silently.
        with pytest.raises(ConfigError, match="begins with its smaller end"):
            a_config(task_broadcast_inputs=text)
    elif text in READ_HERE:
        (broadcast,) = a_config(task_broadcast_inputs=text).broadcast_inputs
        assert READ_HERE[text] == (broadcast.system_stream, broadcast.partitions)
    elif "error" in case["out"]:
        with pytest.raises(ConfigError, match=r"task\.broadcast\.inputs: wanted a partition"):
            a_config(task_broadcast_inputs=text)
    elif "other." in text:
        # Two clusters in one job are refused here.
        with pytest.raises(ConfigError, match="found other"):
            a_config(task_broadcast_inputs=text, systems_other_bootstrap_servers="localhost:9093")
    else:
        assert {our_ssp(fields) for fields in case["out"]} == set(broadcast_ssps(case["in"]["config"]))


@pytest.mark.parametrize("case", cases("ssp_proxy.jsonl", "previous_ssp"), ids=lambda case: case["id"])
def test_samza_finds_the_same_origin_of_an_added_partition(case):
    system, stream, _ = case["in"]["ssp"]
    before, now = case["in"]["previous"], case["in"]["current"]
    config = a_config(task_inputs=f"{system}.{stream}", stores_seen_msg_serde="json", local_store_dir="/data")
    named = SystemStream(system, stream)
    first = plan_job(config, {named: before}, None, ["0"])
    if "error" in case["out"]:
        with pytest.raises(PartitionSchemeError):
            plan_job(config, {named: now}, first, ["0"])
        return

    tasks = {kb.ssp: t.name for t in plan_job(config, {named: now}, first, ["0"]).tasks for kb in t.ssp_kbs}

    assert tasks[our_ssp(case["in"]["ssp"])] == tasks[our_ssp(case["out"])]


@pytest.mark.parametrize("case", cases("ssp_proxy.jsonl", "ssp_proxy"), ids=lambda case: case["id"])
def test_samza_expands_equally(case):
    broadcast = broadcast_ssps(case["in"]["config"])
    stateful = "InMemory" not in case["in"]["config"].get("stores.st.factory", "InMemory")
    previous = {
        ssp: task for ssp, task in our_mapping(case["in"]["previous"]).items() if stateful and ssp not in broadcast
    }
    ssps = sorted(our_ssp(fields) for fields in case["in"]["ssps"])
    scheme = SCHEME_OF[case["in"]["grouper"]]
    if "error" in case["out"]:
        assert_refused_or_better(case, previous)
        return
    divided = [ssp for ssp in ssps if ssp not in broadcast]
    expanded = group_ssps(GROUPERS[scheme](), "scheme", previous, divided)

    expected = {
        our_name(name, 1): {our_ssp(fields) for fields in tasks} - set(broadcast)
        for name, tasks in case["out"].items()
    }
    assert expected == {group.task_name: set(group.ssps) for group in expanded}


def assert_refused_or_better(case, previous):
    """The cases in which Samza throws.

    One has a stream that is broadcast in part, another has fewer partitions. The third turns on elasticity with state,
    which Samza cannot do at all.
    """
    if is_broadcast_in_part(case):
        # Samza counts such a partition once for each task, so to it the stream has grown with their number.
        with pytest.raises(ConfigError, match="is in task.inputs too"):
            handed_in(case)
        return
    config, now = handed_in(case), partition_counts_of(divided_of(case))
    before = plan_job(config, partition_counts_of(previous), None, ["0"])
    if case["out"]["cause"] == "IllegalArgumentException":
        with pytest.raises(PartitionSchemeError, match="wanted at least the 4 partitions of generation 1, found 2"):
            plan_job(config, now, before, ["0"])
        return

    after = plan_job(config, now, before, ["0"], factor=int(case["in"]["config"]["job.elasticity.factor"]))

    halves = {
        (f"{task.name}-{bucket}-2", kb.ssp) for task in before.tasks for kb in task.ssp_kbs for bucket in (0, 1)
    }
    assert halves == {(task.name, kb.ssp) for task in after.tasks for kb in task.ssp_kbs}
