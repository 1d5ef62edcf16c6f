"""Seed 003's table of scheme `max`."""

from samzapy.model.ssp import SystemStream
from samzapy.plan.partition_schemes import SCHEMES

IS1, IS2 = SystemStream("kafka", "IS1"), SystemStream("kafka", "IS2")


def test_max_makes_a_task_for_each_partition_in_the_order_of_task_inputs():
    groups = SCHEMES["max"]([IS2, IS1], {IS1: 4, IS2: 8})

    expected = [("IS2", partition) for partition in range(8)] + [("IS1", partition) for partition in range(4)]
    assert expected == [(ssp.stream, ssp.partition) for group in groups for ssp in group.ssps]
    assert [len(group.ssps) for group in groups] == [1] * 12
    assert groups[0].task_name == "SystemStreamPartition_kafka.IS2.0"
    assert groups[11].task_name == "SystemStreamPartition_kafka.IS1.3"
