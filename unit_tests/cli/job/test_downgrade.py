"""`samzapy job downgrade` step by step, on a memory log.

The cleaner of the log obeys the topic's settings.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samzapy.cli.job.downgrading import ArchiveFile, Done, Parts, carry_out, ended_in_order, print_done
from samzapy.coordinator.assignment.starts import PositionsRead
from samzapy.coordinator.lifecycle.downgrade import HURRIED, look
from samzapy.errors import BrokerUnavailableError, DeadlineError, FencedError, RejectedError, SamzapyError
from samzapy.model.topic_checks import Cluster
from samzapy.model.topics import coordinator_spec
from samzapy.runtime.stream_source import StreamSource
from samzapy.stream.export import read_export
from samzapy.stream.horizon import Extent
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.release_0_1_0 import first_unread
from samzapy.testing.builders import a_topic_found
from samzapy.testing.memory_log import MemoryLog
from unit_tests.fixtures.downgraded_job import a_term, given_back, positions_read
from unit_tests.fixtures.scaled_back_job import CommittingJob, stopped_job

SPEC = coordinator_spec("flights-1")
SETTINGS = {**SPEC.settings, "min.cleanable.dirty.ratio": "0.5", "segment.ms": "604800000"}
"""As the topic has them, with the defaults of the cluster for settings that it does not have itself."""


class Killed(BaseException):
    """The end of the process: no handler catches it."""


class World:
    """A job that was stopped, its topic with a log cleaner, and an archive.

    Attributes:
        fails_at: the step, by its number, at which the process is killed; by default none.
        cleans: whether the log cleaner runs.
    """

    def __init__(self, file: Path, job: CommittingJob | None = None) -> None:
        self.job = job or stopped_job(is_scaled=True)
        self.topic = self.job.world.topic
        self.settings = dict(SETTINGS)
        self.step = 0
        self.fails_at = -1
        self.cleans = True
        self.now_s = 0.0
        self.meanwhile: Callable[[], object] = lambda: None
        self.file = ArchiveFile(file, self.source)

    def source(self) -> StreamSource:
        end = self.topic.end_offset
        return StreamSource(
            topic=self.topic.name,
            extent=Extent(whole_from=0, offset_end=end, known_until_ms=0),
            offset_first=0,
            looked=a_topic_found(SPEC, settings=self.settings),
            cluster=Cluster(bootstrap_servers="b", broker_count=1),
            records=self.records,
        )

    def records(self) -> Iterator[LogRecord]:
        return iter(list(MemoryLog(self.topic).read()))

    def parts(self, **changes: Any) -> Parts:
        expected: dict[str, Any] = {
            "log": _Log(self),
            "topic": self.topic.name,
            "spec": SPEC,
            "positions": self.positions,
            "archive": _Archive(self),
            "settings": _Settings(self),
            "now_s": lambda: self.now_s,
            "pause": self.pause,
        }
        return Parts(**(expected | changes))

    def positions(self) -> PositionsRead:
        positions: PositionsRead = positions_read(self.job)
        return positions

    def begun(self) -> None:
        """A step begins, unless the process is killed in front of it."""
        self.step += 1
        if self.step == self.fails_at:
            raise Killed

    def pause(self, seconds: float) -> None:
        self.begun()
        self.now_s += seconds
        if self.cleans and all(self.settings[name] == HURRIED[name] for name in HURRIED):
            # The last record is in a segment that is still open.
            self.topic.compact(keep_until=self.topic.end_offset - 2, tombstones_until=self.topic.end_offset - 2)
        self.meanwhile()

    def is_clean(self) -> bool:
        return first_unread(self.records()) is None


class _Log(MemoryLog):
    def __init__(self, world: World) -> None:
        super().__init__(world.topic, world.job.world.log().transactional_id)
        self._world = world

    def append_atomically(self, writes: Any) -> int:
        self._world.begun()
        return super().append_atomically(writes)


class _Archive:
    def __init__(self, world: World) -> None:
        self._world = world

    def settings(self) -> Mapping[str, str]:
        return self._world.file.settings()

    def keep(self) -> None:
        self._world.begun()
        self._world.file.keep()


class _Settings:
    """Killed once, the process changes nothing back either."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Mapping[str, str]:
        return self._world.settings

    def alter(self, settings: Mapping[str, str | None]) -> None:
        if 0 < self._world.fails_at <= self._world.step:
            raise Killed
        self._world.begun()
        for name, value in settings.items():
            self._world.settings[name] = SETTINGS[name] if value is None else value


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "a.avro")


def count_of_steps(tmp_path: Path) -> int:
    world = World(tmp_path / "counted.avro")
    carry_out(world.parts(), a_term, 60.0)
    return world.step


def test_nothing_is_left_that_release_0_1_0_cannot_read_and_the_history_is_kept(world: World, tmp_path: Path) -> None:
    before = list(world.records())

    done = carry_out(world.parts(), a_term, 60.0)

    assert done.facts_written > 0 and done.is_archived
    assert world.is_clean()
    assert world.settings == SETTINGS
    with (tmp_path / "a.avro").open("rb") as file:
        assert before == list(read_export(file, "a").records)


def test_a_second_downgrade_does_nothing(world: World, tmp_path: Path) -> None:
    carry_out(world.parts(), a_term, 60.0)
    before, step = world.topic.dump(), world.step
    world.file = ArchiveFile(tmp_path / "another.avro", world.source)

    assert Done(facts_written=0, is_archived=False) == carry_out(world.parts(), a_term, 60.0)
    assert (before, step) == (world.topic.dump(), world.step)
    assert not (tmp_path / "another.avro").exists()


def printed(world: World, archive: Path, output: str, capsys: pytest.CaptureFixture[str]) -> str:
    state = look(world.records(), world.topic.name).known.state
    world.file = ArchiveFile(archive, world.source)
    print_done("flights-1", state, carry_out(world.parts(), a_term, 60.0), archive, output)
    return capsys.readouterr().out


def test_the_archive_of_a_downgrade_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "a.avro"

    assert f"facts were written; the history is in {archive}\n" in printed(world, archive, "table", capsys)

    another = World(tmp_path / "b.avro")
    assert str(tmp_path / "b.avro") == json.loads(printed(another, tmp_path / "b.avro", "json", capsys))["archive"]


def test_a_file_that_a_second_downgrade_does_not_check_is_not_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(world.parts(), a_term, 60.0)
    unrelated = tmp_path / "unrelated.avro"
    unrelated.write_text("mine")

    text = printed(world, unrelated, "table", capsys)
    facts = json.loads(printed(world, tmp_path / "none.avro", "json", capsys))

    assert "flights-1: release 0.1.0 can read it already; nothing was written" == text.splitlines()[0]
    assert str(unrelated) not in text
    assert {"job": "flights-1", "release": "0.1.0", "factsWritten": 0, "archive": None} == facts


def test_a_downgrade_that_is_killed_at_any_point_can_be_continued(tmp_path: Path) -> None:
    steps = count_of_steps(tmp_path)
    assert steps > 6
    for fails_at in range(1, steps + 1):
        world = World(tmp_path / f"{fails_at}.avro")
        before = list(world.records())
        world.fails_at = fails_at
        with pytest.raises(Killed):
            carry_out(world.parts(), a_term, 60.0)
        world.fails_at = -1

        carry_out(world.parts(), a_term, 60.0)

        assert world.is_clean(), fails_at
        assert world.settings == SETTINGS, fails_at
        with (tmp_path / f"{fails_at}.avro").open("rb") as file:
            assert before == list(read_export(file, "a").records), fails_at


def test_without_a_log_cleaner_a_downgrade_times_out_and_restores_the_settings(world: World) -> None:
    world.cleans = False

    with pytest.raises(DeadlineError, match="within 60 s, found the record at offset 0 still there"):
        carry_out(world.parts(), a_term, 60.0)

    assert world.settings == SETTINGS
    world.cleans = True
    carry_out(world.parts(), a_term, 60.0)
    assert world.is_clean()


def test_a_waiting_downgrade_appends_records_that_close_segments(world: World) -> None:
    world.cleans = False
    end = world.topic.end_offset

    with pytest.raises(DeadlineError):
        carry_out(world.parts(), a_term, 9.0)

    rolls = [record for record in MemoryLog(world.topic).read(end) if record.key == b"term"]
    assert 3 == len(rolls)


def test_unreadable_replicas_get_another_minute(world: World) -> None:
    carry_out(world.parts(replica_count=3), a_term, 10.0)

    assert 60 <= world.now_s < 70


def test_a_job_that_cannot_be_downgraded_is_not_changed(tmp_path: Path) -> None:
    job = CommittingJob()
    job.settles()
    job.commits(10)
    world = World(tmp_path / "a.avro", job)
    before = world.topic.dump()

    with pytest.raises(RejectedError, match="nothing was written:\n- container e0 .* is recorded as RUNNING"):
        carry_out(world.parts(), a_term, 60.0)

    assert before == world.topic.dump()
    assert world.settings == SETTINGS
    assert not (tmp_path / "a.avro").exists()


def test_a_new_leader_ends_a_downgrade_and_the_settings_are_restored(world: World) -> None:
    world.cleans = False
    world.meanwhile = world.job.world.log().take_over

    with pytest.raises(FencedError):
        carry_out(world.parts(), a_term, 60.0)

    assert world.settings == SETTINGS


def test_settings_that_cannot_be_restored_are_named_with_the_command(world: World) -> None:
    class Stuck(_Settings):
        def alter(self, settings: Mapping[str, str | None]) -> None:
            if settings != HURRIED:
                raise BrokerUnavailableError("no broker answered")
            super().alter(settings)

    with pytest.raises(SamzapyError, match=r"no broker answered.*--add-config delete.retention.ms=604800000,min"):
        carry_out(world.parts(settings=Stuck(world)), a_term, 60.0)


def test_a_file_that_is_there_already_is_never_written_over(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_text("mine")

    with pytest.raises(RejectedError, match="choose another file"):
        carry_out(world.parts(), a_term, 60.0)

    assert "mine" == (tmp_path / "a.avro").read_text()


def test_a_history_that_was_cut_short_is_no_archive(world: World, tmp_path: Path) -> None:
    world.file.keep()
    whole = (tmp_path / "a.avro").read_bytes()
    (tmp_path / "a.avro").write_bytes(whole[:-10])

    with pytest.raises(RejectedError, match="choose another file"):
        carry_out(world.parts(), a_term, 60.0)


def test_an_older_archive_that_lacks_records_is_refused(world: World) -> None:
    world.file.keep()
    log = world.job.world.log()
    log.take_over()
    log.append_atomically([Write(key=b"factor", value=None)])

    with pytest.raises(RejectedError, match=r"the job has run since \(offset"):
        carry_out(world.parts(), a_term, 60.0)


def test_an_archive_of_another_topic_is_refused(world: World, tmp_path: Path) -> None:
    other = World(tmp_path / "a.avro", given_back(stopped_job(is_scaled=True)))
    other.topic.name = "__samzapy-coordinator-others-1"
    other.file.keep()

    with pytest.raises(RejectedError, match="it is of __samzapy-coordinator-others-1"):
        carry_out(world.parts(), a_term, 60.0)


@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_whose_exception_was_dropped_ends_the_wait(number: int, end: type[BaseException]) -> None:
    with ended_in_order() as pause:
        pause(0)
        with suppress(end):  # As Python does where a generator is finalized.
            signal.raise_signal(number)

        with pytest.raises(end):
            pause(60)


def test_a_second_signal_does_not_interrupt_the_restoring() -> None:
    before = signal.getsignal(signal.SIGTERM)
    restored = []

    def wait() -> None:
        with ended_in_order():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)
                restored.append(True)

    with pytest.raises(SystemExit) as ended:
        wait()

    assert (128 + signal.SIGTERM, [True]) == (ended.value.code, restored)
    assert before == signal.getsignal(signal.SIGTERM)
