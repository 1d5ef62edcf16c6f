"""`scripts/demo` without a terminal: kept running, stopped, interrupted.

Started through its Python file: `scripts/setup`, which the shell file calls first, is what set this environment up.
"""

from __future__ import annotations

import json
import re
import runpy
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests import short_demo
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.testing.broker import DevBroker
from samzapy.testing.waiting import wait_until

SCRIPTS = short_demo.SCRIPTS
SAMZAPY = Path(sys.executable).with_name("samzapy")
_ENDS_WITHIN_S = 900
SHORT_COUNT = 50_000
"""Of flights, where the whole data set would show no more: two micro-batches."""
flights = SimpleNamespace(**runpy.run_path(str(SCRIPTS / "demo_flights.py"), run_name="demo_flights"))
screen = SimpleNamespace(**runpy.run_path(str(SCRIPTS / "demo_screen.py"), run_name="demo_screen"))


def demo_command(directory: Path, *options: str) -> list[str]:
    return [sys.executable, str(SCRIPTS / "demo.py"), "--dir", str(directory), *options]


def run_demo(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(demo_command(directory, *options), capture_output=True, text=True, timeout=_ENDS_WITHIN_S)


def short_command(data_set: Path, moment: str, directory: Path) -> list[str]:
    return [sys.executable, short_demo.__file__, str(data_set), moment, "--dir", str(directory)]


def job_of(directory: Path) -> ProcessIdentity:
    return ProcessIdentity(**json.loads((directory / "demo.json").read_text())["job"])


def processes_with(mark: str) -> list[int]:
    """The pids of living processes with the mark: those of demos and their children."""
    pids = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_dead = (directory / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not is_dead and mark.encode() in (directory / "environ").read_bytes().split(b"\0"):
                pids.append(int(directory.name))
    return pids


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A mark in the environment of all later processes."""
    value = uuid.uuid4().hex
    monkeypatch.setenv("SAMZAPY_TEST_DEMO", value)
    return f"SAMZAPY_TEST_DEMO={value}"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of the first flights."""
    return short_demo.write_short(
        flights.data_set(), tmp_path_factory.mktemp("short") / "flights.csv.zip", SHORT_COUNT
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A demo's directory; its remaining processes are ended afterwards."""
    yield tmp_path / "demo"
    run_demo(tmp_path / "demo", "--stop")


def test_a_demo_is_correct_can_be_kept_and_a_second_one_starts_afresh(
    directory: Path, short: Path, mark: str
) -> None:
    kept = run_demo(directory, "--keep")

    assert (0, "") == (kept.returncode, kept.stderr)
    assert "Right: flights, delayed, sum_min, worst_min and mean_min of all 4,043 aircraft" in kept.stdout
    assert "Read 334,264 updates from delays-by-aircraft and 2,512 messages from flights-without" in kept.stdout
    assert re.search(r"^  processing: .* in [\d,]+  out [\d,]+  lag [\d,]+  [\d,]+ rec/s$", kept.stdout, re.MULTILINE)
    assert "\x1b" not in kept.stdout
    job, broker = job_of(directory), DevBroker(directory / "broker", detached=True)
    assert job.pid in processes_with(mark) and broker.process()
    for line in re.findall(r"^  \S*samzapy (.*)$", kept.stdout, re.MULTILINE):
        words = line.partition("#")[0].split()
        shown = subprocess.run([SAMZAPY, *words], capture_output=True, text=True, timeout=300)
        assert 0 == shown.returncode, f"samzapy {line}: {shown.stderr}"
        assert "flights" in shown.stdout

    refused = run_demo(directory)

    assert 3 == refused.returncode
    assert "--stop" in refused.stderr

    stopped = run_demo(directory, "--stop")

    assert 0 == stopped.returncode
    assert broker.process() is None
    wait_until(lambda: not processes_with(mark), 30, "the demo's processes to end")

    again = subprocess.run(
        short_command(short, "never", directory), capture_output=True, text=True, timeout=_ENDS_WITHIN_S
    )

    assert (0, "") == (again.returncode, again.stderr)
    assert f"of all {len(flights.expected_from(short).figures):,} aircraft" in again.stdout
    assert "exit code 0" in again.stdout
    assert broker.process() is None


def test_a_demo_that_scales_its_job_and_lets_its_topic_grow_is_right(directory: Path, short: Path) -> None:
    command = [*short_command(short, "never", directory), "--scale"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=600)

    assert (0, "") == (done.returncode, done.stderr)
    expected_lines = (
        f"Published {short_demo.FLIGHTS_AT_FIRST:,} flights",
        f"{short_demo.FLIGHTS_PER_S:,} more flights come in each second",
        "SUCCEEDED: 16 tasks run with factor 4",
        "The job reads all 8 partitions",
        "SUCCEEDED: 4 tasks run with factor 1",
        f"All {SHORT_COUNT:,} flights are published",
        f"Read {SHORT_COUNT:,} records, lag 0",
        f"of all {len(flights.expected_from(short).figures):,} aircraft",
    )
    assert re.search(".*".join(map(re.escape, expected_lines)), done.stdout, re.DOTALL), done.stdout


@pytest.mark.parametrize(("moment", "shown"), list(short_demo.MOMENTS.items()))
def test_an_interrupted_demo_leaves_nothing_running(
    directory: Path, short: Path, mark: str, moment: str, shown: str
) -> None:
    command = short_command(short, moment, directory)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("Apache Kafka runs on ")
        demo.send_signal(signal.SIGSTOP)
        try:
            second = run_demo(directory)
        finally:
            demo.send_signal(signal.SIGCONT)
        printed, errors = demo.communicate(timeout=300)

    assert 3 == second.returncode, "two at once in one directory"
    assert 130 == demo.returncode, errors
    assert "spark-submit " in printed, "no job was started"
    assert re.search(shown, printed), "interrupted at another moment"
    assert "broker and job are stopped" in errors
    assert DevBroker(directory / "broker", detached=True).process() is None
    wait_until(lambda: not processes_with(mark), 30, "the demo's processes to end")


def test_a_demo_whose_output_is_closed_leaves_nothing_running(directory: Path) -> None:
    demo = subprocess.Popen(demo_command(directory), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None and demo.stderr is not None
    assert demo.stdout.readline().startswith("Apache Kafka runs on ")

    demo.stdout.close()

    assert 141 == demo.wait(300)
    assert "" == demo.stderr.read()
    demo.stderr.close()
    assert DevBroker(directory / "broker", detached=True).process() is None


def test_a_directory_with_foreign_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()

    refused = run_demo(tmp_path)

    assert 2 == refused.returncode
    assert f"found other files in {tmp_path}" in refused.stderr
    assert (tmp_path / "state").is_dir()


def test_two_acts_at_once_are_refused(tmp_path: Path) -> None:
    refused = run_demo(tmp_path / "demo", "--scale", "--cluster")

    assert 2 == refused.returncode
    assert "wanted --scale or --cluster, found both" in refused.stderr


# --- the status of the job ---


def a_status(**of_last_task: object) -> dict[str, Any]:
    """Two processors on two hosts; the first one has two tasks, the second one."""
    tasks = [
        {"processorId": processor_id, "owner": f"e{processor_id}", "positions": [position]}
        for processor_id, position in (
            ("0", {"ssp": "kafka.flights.0:0/1", "offsetEnd": 100}),
            ("0", {"ssp": "kafka.flights.1:0/1", "offsetEnd": 100}),
            ("1", {"ssp": "kafka.flights.2:0/1", "offsetEnd": 100}),
        )
    ]
    tasks[-1] |= of_last_task
    containers = [{"executionId": f"e{number}", "host": f"w{number}", "phase": "RUNNING"} for number in range(2)]
    totals = {"recordsIn": 7, "recordsOut": 0, "lag": 60}
    return {"factorFinest": 1, "containers": containers, "tasks": tasks, "totals": totals}


def test_a_processor_is_at_work_where_all_its_tasks_are() -> None:
    runners = screen.parse_status(a_status()).runners

    assert {"0": ("e0", "w0"), "1": ("e1", "w1")} == {
        processor_id: (runner.execution_id, runner.host) for processor_id, runner in runners.items()
    }


@pytest.mark.parametrize(
    "of_last_task",
    [
        {"owner": None},
        {"owner": "e7"},
        {"positions": [{"ssp": "kafka.flights.2:0/1", "offsetEnd": None}]},
    ],
    ids=["of no container", "of an ended container", "not begun"],
)
def test_a_processor_with_a_task_that_does_not_run_is_not_at_work(of_last_task: dict[str, object]) -> None:
    assert ["0"] == list(screen.parse_status(a_status(**of_last_task)).runners)
    both = a_status(**of_last_task)
    both["tasks"][-1]["processorId"] = "0"
    assert {} == screen.parse_status(both).runners


def test_records_of_a_killed_container_still_count_as_read() -> None:
    """Counters are those of living containers; positions are of record."""
    assert 300 - 60 == screen.parse_status(a_status()).records_in
    assert 7 == screen.parse_status(a_status() | {"factorFinest": 4}).records_in, "buckets share partitions"


# --- the check itself ---


@pytest.fixture(scope="module")
def expected() -> Any:
    return flights.expected_from(flights.data_set())


@pytest.fixture
def right(expected: Any) -> Any:
    """Outputs as a job without a fault leaves them."""
    counts = flights.Outputs().counts
    counts.update({tailnum: figures["flights"] for tailnum, figures in expected.figures.items()})
    last = deepcopy(dict(expected.figures))
    return flights.Outputs(last=last, counts=counts, aside=expected.aside)


def test_expected_figures_come_from_the_data_set_and_not_from_the_job(expected: Any) -> None:
    without_delay = [figures for figures in expected.figures.values() if figures["mean_min"] is None]

    assert (336_776, 4_043, 2_512) == (expected.flight_count, len(expected.figures), expected.aside)
    assert 334_264 == expected.update_count
    assert 6 == len(without_delay)
    assert all((0, 0, None) == (item["delayed"], item["sum_min"], item["worst_min"]) for item in without_delay)


def test_published_messages_equal_the_rows_that_pandas_reads(expected: Any) -> None:
    keys: dict[str, int] = {}
    without_key, delay_sum_min = 0, 0
    for key, value in flights.messages(flights.data_set()):
        if key is None:
            without_key += 1
        else:
            keys[key] = keys.get(key, 0) + 1
            delay_sum_min += json.loads(value)["dep_delay"] or 0

    assert {tailnum: figures["flights"] for tailnum, figures in expected.figures.items()} == keys
    assert expected.aside == without_key
    assert sum(figures["sum_min"] for figures in expected.figures.values()) == delay_sum_min


def test_right_figures_are_not_complained_about(expected: Any, right: Any) -> None:
    assert [] == flights.differences(expected, right)


@pytest.mark.parametrize(
    ("name", "value"),
    [("flights", 58), ("delayed", 0), ("sum_min", 1889.0), ("worst_min", None), ("mean_min", 33.14), ("more", 1)],
)
def test_one_wrong_figure_of_one_aircraft_is_named(expected: Any, right: Any, name: str, value: object) -> None:
    right.last["N8698A"] = {**right.last["N8698A"], name: value}

    (wrong,) = flights.differences(expected, right)

    assert wrong.startswith(f"N8698A: {name}: wanted ")
    assert wrong.endswith(f"found {value!r}")


def test_an_update_lost_or_done_twice_is_named(expected: Any) -> None:
    outputs = flights.Outputs()
    for tailnum, figures in sorted(expected.figures.items()):
        for count in range(1, figures["flights"] + 1):
            # Of one aircraft the third update came twice and the fifth never.
            seen = 3 if (tailnum, count) == ("N8698A", 4) else count
            outputs.add_update(tailnum.encode(), json.dumps({**figures, "flights": seen}).encode())
    outputs.aside = expected.aside + 1

    wrong = flights.differences(expected, outputs)

    assert [
        "flights-without-tailnum: wanted 2,512 messages, found 2,513",
        "N8698A: wanted one update per flight in turn, but update 4 counts 3 flights",
    ] == wrong


def test_an_aircraft_too_few_or_too_many_is_named(expected: Any, right: Any) -> None:
    del right.last["N8698A"], right.counts["N8698A"]
    right.add_update(b"N0", json.dumps({"flights": 1}).encode())

    wrong = flights.differences(expected, right)

    assert "delays-by-aircraft: wanted 334,264 updates, found 334,208" == wrong[0]
    assert ["N0", "N8698A"] == [text.partition(":")[0] for text in wrong[1:]]
