"""Tasks -> processors: balanced by count, and as few tasks as possible change hands.

A task that moves takes its state with it, so a task stays where it was unless its processor is gone or has
more than its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samzapy.model.job import ProcessorId, TaskName


def group_tasks(
    task_names: Sequence[TaskName],
    processor_ids: Sequence[ProcessorId],
    previous: Mapping[TaskName, ProcessorId],
) -> Mapping[TaskName, ProcessorId]:
    """The processor of each task.

    Args:
        task_names: in the order in which they are given out.
        processor_ids: at least one; their order does not matter.
        previous: where tasks were, also those and processors that are no more.
    """
    assert processor_ids, "a plan needs a processor"
    processors = sorted(set(processor_ids), key=_numbers_by_size)
    share = _shares(task_names, processors, previous)
    found: dict[TaskName, ProcessorId] = {}
    for task in task_names:
        processor = previous.get(task)
        if processor is not None and share.get(processor, 0) > 0:
            found[task] = processor
            share[processor] -= 1
    # What is left goes round, so that neighbouring partitions (of one topic, alike in load) spread.
    for task in task_names:
        if task not in found:
            processor = max(processors, key=lambda candidate: share[candidate])
            found[task] = processor
            share[processor] -= 1
    return {task: found[task] for task in task_names}


def _shares(
    task_names: Sequence[TaskName],
    processors: Sequence[ProcessorId],
    previous: Mapping[TaskName, ProcessorId],
) -> dict[ProcessorId, int]:
    """How many tasks each processor gets; who had most is first to get one more, so that less moves."""
    had = {processor: 0 for processor in processors}
    for task in task_names:
        processor = previous.get(task)
        if processor in had:
            had[processor] += 1
    least, with_one_more = divmod(len(task_names), len(processors))
    by_had = sorted(processors, key=lambda processor: (-had[processor], _numbers_by_size(processor)))
    return {processor: least + (index < with_one_more) for index, processor in enumerate(by_had)}


def _numbers_by_size(processor_id: ProcessorId) -> tuple[int, str]:
    """Orders `2` before `10`, and is total for any text."""
    return len(processor_id), processor_id
