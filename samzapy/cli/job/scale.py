"""`samzapy job scale`: change the elasticity factor or the container count.

See SEP-32.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.option import is_json, print_json
from samzapy.cli.target.address import of_a_job
from samzapy.cli.target.requests import (
    Asking,
    answer_json,
    placement_store,
    recorded_state,
    run_id_of,
    show_answer,
    with_request,
)
from samzapy.config import FACTORS, parse_recorded
from samzapy.errors import ConfigError, CorruptRecordError
from samzapy.model.placement import Scale
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic, coordinator_topic

if TYPE_CHECKING:
    from samzapy.adapters.kafka.reading import PartitionReader
    from samzapy.coordinator.state import CoordinatorState
    from samzapy.plan.plan_change import PlanChange
    from samzapy.runtime.job_address import JobAddress

_LOG = logging.getLogger(__name__)
_PAUSES_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.5


@click.command()
@of_a_job
@click.option("--factor", type=click.Choice(FACTORS), help="Set the number of key buckets per input partition.")
@click.option(
    "--containers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Set the number of containers of a submitted job.",
)
@click.option("--plan", "only_plan", is_flag=True, help="Only show which tasks would split, merge and move.")
@click.option(
    "--job-file",
    type=click.Path(path_type=Path, exists=True),
    help="Load the job's own groupers from beside this file, for --plan.",
)
@click.option(
    "--expected-generation",
    type=click.IntRange(min=1),
    metavar="N",
    help="Refuse the request unless plan N is still in force; --plan prints N.",
)
@with_request
def scale(
    address: JobAddress,
    factor: str | None,
    containers: int | None,
    only_plan: bool,
    job_file: Path | None,
    expected_generation: int | None,
    asking: Asking,
) -> None:
    """Change the elasticity factor or the number of containers of a running job.

    --factor sets the number of key buckets per input partition; 1 turns elasticity off. With --wait, returns once all
    tasks are running and prints how long each key bucket was paused, by the broker's clock.

    Exits with 3 if the request is refused, 1 if it fails, 5 if no answer comes in time. A change that has begun
    continues, even if its request expires.

    \b
    Examples:
      samzapy job scale --job flight-delays-1 --bootstrap-servers localhost:9092 --factor 4 --plan
      samzapy job scale --job flight-delays-1 --bootstrap-servers localhost:9092 --factor 4
      samzapy job scale --job flight-delays-1 --bootstrap-servers localhost:9092 --containers 6
    """
    _log_files_read(address, job_file)
    state = recorded_state(address)
    if containers is not None:
        if factor is not None or only_plan or expected_generation is not None:
            raise ConfigError(
                "wanted --containers alone, found other changes beside it; run one command for each change"
            )
        _resize(address, state, containers, asking)
        return
    if factor is None:
        raise ConfigError("wanted --factor or --containers, found neither; give one of them")
    if only_plan:
        _show_change(address, _planned(address, state, int(factor), job_file), asking.output)
        return
    _rescale(address, state, int(factor), expected_generation, asking)


def _show_change(address: JobAddress, change: PlanChange, output: str) -> None:
    from samzapy.cli.job.plan_table import print_change
    from samzapy.plan.plan_change import plan_change_json

    if is_json(output):
        print_json(plan_change_json(address.job, change), output)
    else:
        print_change(address.job, change)
        click.echo(expected_text(change.expected_pause_ms))


def _rescale(
    address: JobAddress, state: CoordinatorState, factor: int, expected_generation: int | None, asking: Asking
) -> None:
    from samzapy.adapters.kafka.reading import PartitionReader

    topic = checkpoint_topic(address.job)
    with placement_store(address) as store, PartitionReader(address.connection, topic) as reader:
        uuid = store.write_scale_request(
            asking.deployment_id or run_id_of(address, state),
            factor,
            expected_generation=expected_generation,
            request_expiry=asking.expiry,
        )
        answer = asking.answer(store, uuid)
        if answer is None:
            return
        pauses = _pauses(address, reader, state.epoch)
    if is_json(asking.output):
        print_json({**answer_json(answer), **_pauses_json(pauses)}, asking.output)
    else:
        show_answer(answer, asking.output)
        click.echo(_pauses_text(pauses))


def _log_files_read(address: JobAddress, job_file: Path | None) -> None:
    names = [] if address.properties is None else [f"properties {address.properties.absolute()}"]
    if job_file is not None:
        names.append(f"groupers beside the job file {job_file.absolute()}")
    if names:
        _LOG.info("reads %s", ", ".join(names))


def _resize(address: JobAddress, state: CoordinatorState, containers: int, asking: Asking) -> None:
    with placement_store(address) as store:
        uuid = store.write_resize_request(
            asking.deployment_id or run_id_of(address, state), containers, request_expiry=asking.expiry
        )
        answer = asking.answer(store, uuid)
    show_answer(answer, asking.output)


def _planned(address: JobAddress, state: CoordinatorState, factor: int, job_file: Path | None) -> PlanChange:
    """The change that the coordinator would plan; nothing is written."""
    from samzapy.runtime.job_groupers import load_groupers
    from samzapy.runtime.planned_changes import scale_change

    config = parse_recorded(state.config)
    own = config.ssp_grouper_factory or config.task_name_grouper_factory
    if own is not None and job_file is None:
        raise ConfigError(f"--job-file: wanted the job file, because {own} beside it groups the tasks; found nothing")
    groupers = load_groupers(config, (job_file or Path()).absolute().parent)
    return scale_change(Scale(factor=factor), state, groupers, address.connection)


def _pauses(address: JobAddress, reader: PartitionReader, epoch_before: int) -> Mapping[SspKeyBucket, int]:
    """The pause of each bucket granted after `epoch_before`.

    The bucket must have a commit before and after it.
    """
    from samzapy.adapters.kafka.reading import stamps_at
    from samzapy.coordinator.assignment.grants import newest_grants
    from samzapy.inspection.rebalance_pause import Pauses
    from samzapy.runtime.job_address import READ_WAIT_S
    from samzapy.stream.codec import decode

    state = recorded_state(address)
    plan_at = {(coordinator_topic(address.job), 0): state.generation_offset}
    planned_ms = max((stamp.timestamp_ms for stamp in stamps_at(address.connection, plan_at).values()), default=0)
    pauses = Pauses(tuple(newest_grants(state).values()), epoch_before, planned_ms)
    give_up_at_s = time.monotonic() + _PAUSES_WITHIN_S
    offset_next = 0
    while True:
        for record in reader.read_stable(READ_WAIT_S, offset_from=offset_next):
            offset_next = record.offset + 1
            try:
                pauses.add(record.timestamp_ms, decode(record, topic=reader.topic))
            except CorruptRecordError:
                # The record is no position; `samzapy doctor` reports it.
                continue
        if pauses.are_over or time.monotonic() >= give_up_at_s:
            return pauses.found_ms
        time.sleep(_LOOK_EVERY_S)


def _pauses_json(pauses: Mapping[SspKeyBucket, int]) -> Mapping[str, object]:
    return {"pausesMs": {str(ssp_kb): pauses[ssp_kb] for ssp_kb in sorted(pauses)}}


def expected_text(pause_ms: int | None) -> str:
    """The expected pause of a change, as text."""
    pause = "unknown" if pause_ms is None else f"about {pause_ms / 1000:.1f} s" if pause_ms else "none"
    return f"expected pause of a key: {pause} (an estimate, docs/guides/elasticity.md)"


def _pauses_text(pauses: Mapping[SspKeyBucket, int]) -> str:
    if not pauses:
        return "no pause measured: no reassigned key bucket had commits both before and after the change"
    ordered: Sequence[int] = sorted(pauses.values())
    median = ordered[len(ordered) // 2]
    return f"{len(ordered)} key buckets were paused: median {median} ms, longest {ordered[-1]} ms"
