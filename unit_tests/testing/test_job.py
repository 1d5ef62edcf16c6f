"""A whole job in memory: the real coordinator, container and tasks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from samzapy.errors import ConfigError, SamzapyError, TaskError
from samzapy.testing.job import CRASH_POINTS, DRIVER, TIMER_CRASH_POINTS, MemoryJob
from samzapy.testing.memory.local_state import MemoryLocalTransaction

_JOB = """
import samzapy as sz

words = sz.Stream("kafka.words", key=sz.String, value=sz.String)
more = sz.Stream("kafka.more", key=sz.String, value=sz.String)
seen = sz.Stream("kafka.seen", key=sz.String, value=sz.Json())

@sz.task(inputs=[words{inputs}], outputs=[seen])
class Words(sz.Task[str, str]):
    count = sz.counter()
    quiet = sz.timer("processing")

    def process(self, message, out):
        if message.value == "fail":
            raise ValueError("asked to")
        out.send(seen, [message.value, self.count.add()], key=message.key)
        self.quiet.set(self.quiet.now_ms() + 10_000)

    @quiet.fires
    def is_quiet(self, timer, out):
        out.send(seen, ["quiet", self.count.get()], key=timer.key)
        self.count.clear()
"""
_PROPERTIES = "job.name=words\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
KEYS = "abcdefgh"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    return a_job_file(tmp_path)


def a_job_file(tmp_path: Path, inputs: str = "") -> Path:
    path = tmp_path / "words.py"
    path.write_text(_JOB.format(inputs=inputs))
    path.with_suffix(".properties").write_text(_PROPERTIES)
    return path


def seen(job: MemoryJob, key: str) -> list[object]:
    return [output.value for output in job.read("seen") if output.key == key]


def test_messages_are_handled_and_state_is_kept(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.send("kafka.words", "y", key="b")
        job.send("", "z", key="a")

        assert [["x", 1], ["z", 2]] == seen(job, "a")
        assert [["y", 1]] == seen(job, "b")
        assert {"a": 2, "b": 1} == job.state("count")


@pytest.mark.parametrize("booted_s_ago", [5, 10 * 365 * 86_400])
def test_a_job_in_memory_does_not_depend_on_when_the_machine_booted(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, booted_s_ago: int
) -> None:
    real, begun_s = time.monotonic, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: real() - begun_s + booted_s_ago)
    with MemoryJob(job_file) as job:
        job.advance(days=1)
        job.restart()
        job.send("words", "x", key="a")

        assert [["x", 1]] == seen(job, "a")


def test_time_passes_only_when_it_is_advanced(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.restart()
        job.advance(seconds=9)
        assert [["x", 1]] == seen(job, "a")

        job.advance(seconds=1)

        assert [["x", 1], ["quiet", 1]] == seen(job, "a")
        assert {} == job.state("count") == job.state("_timers")


@pytest.mark.parametrize("factors", [(4,), (4, 1), (2, 8, 1)])
def test_state_and_timers_move_with_their_keys(job_file: Path, factors: tuple[int, ...]) -> None:
    with MemoryJob(job_file) as job:
        for factor in (1, *factors):
            job.scale(factor)
            for key in KEYS:
                job.send("words", str(factor), key=key)
        job.advance(seconds=10)

        rounds = len(factors) + 1
        for key in KEYS:
            assert [*range(1, rounds + 1), rounds] == [count for _, count in seen(job, key)]  # type: ignore[misc,has-type]


@pytest.mark.parametrize("point", [DRIVER, *CRASH_POINTS, *TIMER_CRASH_POINTS])
@pytest.mark.parametrize("factor", [1, 4])
def test_a_crash_at_any_place_changes_nothing(job_file: Path, point: str, factor: int) -> None:
    with MemoryJob(job_file, factor=factor, partitions=2) as job:
        for number in range(3):
            for key in KEYS:
                job.send("words", str(number), key=key)
            job.settle()
            job.crash(point)
        job.advance(minutes=1)

        for key in KEYS:
            assert [["0", 1], ["1", 2], ["2", 3], ["quiet", 3]] == seen(job, key)
        assert {} == job.state("count")
        assert point == DRIVER or job.crashes >= 1


@pytest.mark.parametrize("point", ["", *CRASH_POINTS, *TIMER_CRASH_POINTS])
@pytest.mark.parametrize("factors", [(1, 4), (4, 1)])
def test_timers_that_are_due_while_the_factor_changes_fire_once(
    job_file: Path, factors: tuple[int, int], point: str
) -> None:
    with MemoryJob(job_file, factor=factors[0], partitions=2) as job:
        for key in KEYS:
            job.send("words", "x", key=key)
        job.settle()
        if point:
            job.crash(point)

        # The tick and the change are under way together.
        job._world.clock.jump_wall(10_000)
        job.scale(factors[1])

        assert {key: [["x", 1], ["quiet", 1]] for key in KEYS} == {key: seen(job, key) for key in KEYS}
        assert {} == job.state("_timers")


def test_a_container_that_is_to_stop_during_a_tick_lets_its_timers_fire_once(job_file: Path) -> None:
    with MemoryJob(job_file, partitions=2) as job:
        for key in KEYS:
            job.send("words", "x", key=key)
        job.settle()
        container, run = job._world.container, job._world.container.query._run
        ticks: list[bool] = []

        def run_and_stop(plan: object, works: object, ends: object, *, is_tick: bool) -> object:
            container.ask_to_stop()
            ticks.append(is_tick)
            return run(plan, works, ends, is_tick=is_tick)  # type: ignore[arg-type]

        container.query._run = run_and_stop  # type: ignore[assignment,method-assign]
        job._world.clock.jump_wall(10_000)
        job._world.until(lambda: container.is_over, "the container to stop")
        job._world.start()

        assert [True] == ticks
        assert {key: [["x", 1], ["quiet", 1]] for key in KEYS} == {key: seen(job, key) for key in KEYS}


def test_a_crash_that_loses_the_disk_restores_state_from_the_changelog(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.settle()

        job.crash(loses_disk=True)
        job.send("words", "y", key="a")

        assert [["x", 1], ["y", 2]] == seen(job, "a")


def test_a_rewind_brings_the_messages_again(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.settle()

        job.rewind("words", "oldest")

        assert [["x", 1], ["x", 2]] == seen(job, "a")


@pytest.mark.parametrize("loses_disk", [False, True])
def test_a_container_that_moves_takes_state_and_timers_along(job_file: Path, loses_disk: bool) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.move()
        job.crash(loses_disk=loses_disk)
        job.send("words", "y", key="a")
        # The first host has the state of before.
        job.move()
        job.send("words", "z", key="a")
        job.advance(seconds=10)

        assert [["x", 1], ["y", 2], ["z", 3], ["quiet", 3]] == seen(job, "a")


def test_timers_follow_a_clock_that_jumps_and_fire_once(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.jump_clock(hours=1)
        assert [["x", 1], ["quiet", 1]] == seen(job, "a")

        job.jump_clock(hours=-1)
        job.advance(seconds=10)
        assert [["x", 1], ["quiet", 1]] == seen(job, "a")

        job.send("words", "y", key="a")
        job.jump_clock(hours=-1)
        job.advance(minutes=60)
        assert [["x", 1], ["quiet", 1], ["y", 1]] == seen(job, "a")
        job.advance(seconds=10)
        assert [["x", 1], ["quiet", 1], ["y", 1], ["quiet", 1]] == seen(job, "a")


def test_a_timer_of_an_earlier_moment_fires_after_one_of_a_later_moment(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.jump_clock(hours=1)
        job.send("words", "x", key="a")
        job.advance(seconds=10)
        job.jump_clock(hours=-1)

        job.send("words", "y", key="a")
        job.advance(seconds=10)

        assert [["x", 1], ["quiet", 1], ["y", 1], ["quiet", 1]] == seen(job, "a")


def test_a_rewind_leaves_a_timer_that_is_set(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.settle()
        job.advance(seconds=9)

        job.rewind("", "newest")

        job.advance(seconds=1)
        assert [["x", 1], ["quiet", 1]] == seen(job, "a")


def test_inputs_meet_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    with MemoryJob(a_job_file(tmp_path, ", more")) as job:
        for number in range(4):
            job.send("more" if number % 2 else "words", str(number), key="a")

        assert [[str(number), number + 1] for number in range(4)] == seen(job, "a")


def test_outputs_of_all_partitions_are_read_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    path = a_job_file(tmp_path)
    sent = "[message.value, self.count.add()], key=message.key"
    path.write_text(path.read_text().replace(sent, f"{sent}, partition={{'x': 2, 'y': 1}}.get(message.value)"))
    with MemoryJob(path) as job:
        for value in ("x", "y", "z", "x"):
            job.send("words", value, key="a")

        assert [("x", 2), ("y", 1), ("z", None), ("x", 2)] == [
            (output.value[0], output.partition) for output in job.read("seen")
        ]


def test_an_output_without_a_time_has_that_of_the_clock_of_the_job(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.advance(seconds=10)

        sent, of_timer = job.read("seen")

    assert sent.timestamp_ms is not None
    assert sent.timestamp_ms + 10_000 == of_timer.timestamp_ms


def test_dead_letters_of_a_broadcast_input_are_not_among_those_of_keys(tmp_path: Path) -> None:
    path = a_job_file(tmp_path)
    path.write_text(path.read_text().replace("outputs=[seen]", "outputs=[seen], broadcast=[more]"))
    settings = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.failed"}
    with MemoryJob(path, partitions=2, settings=settings) as job:
        job.send("more", "fail", key="b")
        job.send("words", "fail", key="a")

        assert [b"a"] == [letter.key for letter in job.dead_letters()]
        assert [b"a", b"b", b"b"] == sorted(letter.key for letter in job.read("failed"))
        assert ["kafka.seen"] == job.outputs()


def test_a_failed_message_ends_the_job_with_its_error(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "fail", key="a")

        with pytest.raises(TaskError, match="offset 0, key .*: ValueError: asked to"):
            job.settle()


def test_a_refused_request_has_the_reason(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        with pytest.raises(ConfigError, match="wanted a factor that is a power of two from 1 to 256, found 3"):
            job.scale(3)
        with pytest.raises(ConfigError, match="rewind: .*yesterday"):
            job.rewind("words", "yesterday")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda job: job.send("others", "x"), "wanted an input of the job .kafka.words.*, found 'others'"),
        (lambda job: job.state("others"), "wanted a store of the job .*, found 'others'"),
        (lambda job: job.crash("somewhere"), "wanted a place to crash at .driver, before-begin.*, found 'somewhere'"),
    ],
)
def test_a_wrong_call_is_refused(job_file: Path, call: object, reason: str) -> None:
    with MemoryJob(job_file) as job, pytest.raises(SamzapyError, match=reason):
        call(job)  # type: ignore[operator]


def test_intermediate_streams_are_refused(job_file: Path) -> None:
    job_file.write_text("import samzapy\n\n@samzapy.task\ndef f(envelope, collector, context): pass\n")
    settings = {"task.inputs": "kafka.words", "task.intermediate.by_x.partitions": "2"}

    with pytest.raises(ConfigError, match="not in memory yet"):
        MemoryJob(job_file, settings=settings)


# --- tails ---


@pytest.mark.parametrize("looks", range(1, 10))
@pytest.mark.parametrize("place", [None, *CRASH_POINTS])
def test_a_tail_that_ends_or_crashes_anywhere_loses_and_doubles_nothing(
    job_file: Path, looks: int, place: str | None
) -> None:
    with MemoryJob(job_file, partitions=1) as job:
        job.pace.batch_max, job.pace.tail_looks = 2, looks
        if place is not None:
            # The first transaction is of a micro-batch, the second one of its tail.
            job.crash(place, hit=2)
        for number in range(9):
            job.send("words", str(number), key=KEYS[number % 2])

        assert [[str(number), number // 2 + 1] for number in range(0, 9, 2)] == seen(job, "a")
        assert [[str(number), number // 2 + 1] for number in range(1, 9, 2)] == seen(job, "b")
        assert job._world.crash_points.hits["tail-at-the-common-end"]


def test_without_looks_there_is_no_tail(job_file: Path) -> None:
    with MemoryJob(job_file) as job:
        job.send("words", "x", key="a")
        job.settle()

        assert 0 == job._world.crash_points.hits["tail-at-the-common-end"]


# --- without one of the safeguards it goes wrong ---


def test_a_scan_from_the_timer_that_fired_last_would_lose_timers(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer may be set to an earlier moment."""
    due, fired_ms = MemoryLocalTransaction.due, [0]

    def due_later(
        self: MemoryLocalTransaction, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> list[tuple[int, bytes, bytes]]:
        rows = [row for row in due(self, store, domain, until_ms, count_max) if row[0] > fired_ms[0]]
        fired_ms[0] = max([fired_ms[0], *(moment_ms for moment_ms, _, _ in rows if until_ms is not None)])
        return rows

    monkeypatch.setattr(MemoryLocalTransaction, "due", due_later)

    with pytest.raises(AssertionError):
        test_a_timer_of_an_earlier_moment_fires_after_one_of_a_later_moment(job_file)
