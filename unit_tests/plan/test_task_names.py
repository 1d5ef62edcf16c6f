"""Task names are read back exactly, whatever the name of a topic is."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.task_names import TaskNameParts

TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name not in (".", ".."))
SSPS = st.builds(SystemStreamPartition, st.just("kafka"), TOPICS, st.integers(0, 10_000))
# Names that a grouper of the job's own may give its tasks; one that looks like a bucket is refused before.
OTHERS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,50}[a-z]", fullmatch=True).filter(
    lambda name: not name.startswith(("Partition_", "SystemStreamPartition_"))
)
FACTORS = st.sampled_from([1, 2, 4, 8, 256])


@given(base=SSPS | st.integers(0, 10_000) | OTHERS, factor=FACTORS, data=st.data())
def test_every_name_is_parsed_back_to_its_parts(base, factor, data):
    parts = TaskNameParts(base=base, bucket=data.draw(st.integers(0, factor - 1)), factor=factor)

    assert parts == TaskNameParts.parse(parts.name)
    assert TaskNameParts(base=base).name == parts.base_name


@given(ssp=SSPS)
@example(ssp=SystemStreamPartition("kafka", "orders.3-1-4", 0))
@example(ssp=SystemStreamPartition("kafka", "a.", 7))
def test_a_stream_that_looks_like_a_bucket_is_still_a_stream(ssp):
    assert ssp == TaskNameParts.parse(TaskNameParts(base=ssp).name).base


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (TaskNameParts(base=3), "Partition_3"),
        (TaskNameParts(base=3, bucket=1, factor=4), "Partition_3-1-4"),
        (
            TaskNameParts(base=SystemStreamPartition("kafka", "orders", 3)),
            "SystemStreamPartition_kafka.orders.3",
        ),
        (
            TaskNameParts(base=SystemStreamPartition("kafka", "orders", 3), bucket=1, factor=4),
            "SystemStreamPartition_kafka.orders.3-1-4",
        ),
        (TaskNameParts(base="Task_0"), "Task_0"),
        (TaskNameParts(base="by-customer", bucket=1, factor=4), "by-customer-1-4"),
    ],
)
def test_task_names_are_those_of_sep_32(parts, name):
    assert name == parts.name
    assert parts == TaskNameParts.parse(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Partition_",
        "Partition_03",
        "Partition_3-0-1",
        "Partition_3-4-4",
        "Partition_3-0-3",
        "Partition_x",
        "SystemStreamPartition_",
        ".",
        "../x",
        "a/b",
        "a b",
        "x" * 201,
    ],
)
def test_a_text_that_no_task_is_called_is_refused(name):
    with pytest.raises(ValueError, match="wanted"):
        TaskNameParts.parse(name)
