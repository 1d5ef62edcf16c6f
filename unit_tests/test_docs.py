"""The statements of the documentation hold: links, files, settings, exit codes."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from samzapy.config import Secret, in_force, merge, parse_config, read_properties
from samzapy.errors import ExitCode, SamzapyError
from samzapy.inspection.load import Advice
from samzapy.inspection.metrics import METRICS
from samzapy.inspection.standstill import Cause
from samzapy.model.finding import CODES, Severity
from samzapy.model.ssp import SystemStream
from samzapy.plan.groupers import Groupers
from samzapy.plan.job_plan import plan_job
from samzapy.stream.keys import Namespace
from samzapy.task import load_task_factory
from samzapy.testing.builders import a_config
from samzapy.testing.task_kit import InputMessage, run_task
from samzapy.version import __version__
from simulation.standstills import OF_HISTORIES, OF_LAUNCHES

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLE_LINES_MAX = 25


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))

    for target, anchor in links:
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors_of(path), f"{page.name}: {target} has no heading #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(page: Path) -> None:
    for name in re.findall(
        r"`((?:samzapy|scripts|schemas|examples|docs)/[\w./-]+)`", page.read_text(encoding="utf-8")
    ):
        assert list(ROOT.glob(f"{name}*")), f"{page.name} names {name}, which is not there"


def test_the_walk_shows_the_name_of_the_file_that_it_links_to() -> None:
    for shown, target in re.findall(r"\[([\w/{},]+\.py)\]\(([^)]+)\)", text_of("docs/internals/architecture.md")):
        assert f"../../samzapy/{shown}" == target


def test_the_map_in_the_architecture_is_the_one_that_is_checked() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config["importlinter:contract:map"]["layers"].split("\n")
    expected = "  >  ".join(layer.replace("samzapy.", "") for layer in layers if layer)

    assert expected in text_of("docs/internals/architecture.md")


@pytest.mark.parametrize("package", ["coordinator", "container"])
def test_the_order_inside_a_package_is_the_one_that_is_checked(package: str) -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    layers = config[f"importlinter:contract:{package}"]["layers"].split("\n")
    expected = "  >  ".join(layer for layer in layers if layer)

    assert re.search(rf"^{package}: +{re.escape(expected)}$", text_of("docs/internals/architecture.md"), re.MULTILINE)


def test_every_invariant_is_defined_once_and_guarded_by_a_test_that_exists() -> None:
    rows = re.findall(r"^\| (L\d+) \| .* \| `(\w+)` \|$", text_of("docs/internals/invariants.md"), re.MULTILINE)
    code = [path.read_text() for name in ("samzapy", "unit_tests") for path in (ROOT / name).rglob("*.py")]

    assert [f"L{number}" for number in range(1, 11)] == [name for name, _ in rows]
    assert [] == [test for _, test in rows if not any(f"def {test}(" in text for text in code)]


def test_every_protection_is_shown_by_a_test_that_exists() -> None:
    rows = re.findall(r"^\| .*\. \| `(test_\w+)` \|$", text_of("docs/guides/security.md"), re.MULTILINE)
    code = [path.read_text() for name in ("unit_tests", "integration_tests") for path in (ROOT / name).rglob("*.py")]

    assert 10 <= len(rows)
    assert [] == [test for test in rows if not any(f"def {test}(" in text for text in code)]


def test_every_namespace_of_the_coordinator_stream_is_explained() -> None:
    architecture = text_of("docs/internals/architecture.md")

    for namespace in set(Namespace) - {Namespace.CHECKPOINT, Namespace.PROGRESS}:
        assert re.search(rf"`{namespace}(/[^`]*)?`", architecture), f"{namespace} is not explained"


def test_the_configuration_page_is_written_from_the_keys() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "config_reference.py"), run_name="config_reference")

    assert script["page"]() == text_of("docs/reference/configuration.md"), "run scripts/config_reference"
    assert script["samza_page"]() == text_of("docs/guides/coming-from-samza.md"), "run scripts/config_reference"


def test_every_finding_is_explained_with_its_severity() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)$", text_of("docs/guides/doctor.md"), re.MULTILINE)

    assert sorted(code for code, _ in rows) == sorted(CODES)
    for code, text in rows:
        assert ("`degraded`" in text) == (CODES[code] is Severity.DEGRADED), code


def test_every_cause_of_a_standstill_is_explained() -> None:
    causes = re.findall(r"^\| `([a-z-]+)` \|", text_of("docs/guides/standstill.md"), re.MULTILINE)

    assert [cause.value for cause in Cause] == causes


def test_every_cause_of_a_standstill_has_a_test_that_makes_it_true() -> None:
    table = text_of("docs/internals/testing.md").partition("### Causes of a standstill")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (?:(the simulation)|`(\w+\.py)::(\w+)`) \|$", table, re.MULTILINE)
    files = [path for part in ("unit_tests", "integration_tests") for path in (ROOT / part).rglob("test_*.py")]

    assert [cause.value for cause in Cause] == [cause for cause, *_ in rows]
    assert OF_HISTORIES | OF_LAUNCHES == {cause for cause, is_simulated, *_ in rows if is_simulated}
    for _, is_simulated, file_name, name in rows:
        texts = [path.read_text() for path in files if path.name == file_name]
        assert is_simulated or any(f"def {name}(" in text for text in texts), name


def test_every_metric_is_in_the_table_with_its_kind_its_labels_and_its_meaning() -> None:
    rows = re.findall(r"^\| `samzapy_\w+` .*\|$", text_of("docs/reference/metrics.md"), re.MULTILINE)

    assert [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.meaning} | {metric.sep32 or '-'} |"
        for metric in METRICS
    ] == rows


def test_every_advice_of_job_top_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]* \|$", text_of("docs/reference/metrics.md"), re.MULTILINE)

    assert sorted(rows) == sorted(Advice)


def test_every_exit_code_is_documented_under_its_name() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text_of("docs/reference/exit-codes.md"), re.MULTILINE)
    codes = {name: code for name, code in vars(ExitCode).items() if name.isupper()}

    assert codes == {name: int(code) for code, name in rows}


def test_supervisors_do_not_restart_ends_that_the_coordinator_would_not_restart() -> None:
    """In a self-managed job a container that ends so would end so again."""
    pages = ("docs/guides/production-checklist.md", "docs/reference/exit-codes.md")
    units = [codes for page in pages for codes in re.findall(r"\bRestartPreventExitStatus=([\d ]+)", text_of(page))]

    expected = {ExitCode.USAGE, ExitCode.REJECTED, ExitCode.TASK_FAILED, ExitCode.BAD_DATA}
    assert [expected, expected] == [{int(code) for code in codes.split()} for codes in units]


def test_every_error_ends_with_a_documented_exit_code() -> None:
    codes = {code for name, code in vars(ExitCode).items() if name.isupper()}
    errors = [SamzapyError]
    for error in errors:
        errors.extend(error.__subclasses__())

    assert {error.exit_code for error in errors} <= codes


def test_the_example_of_the_readme_is_short_and_is_a_job(tmp_path: Path) -> None:
    (example,) = code_blocks(text_of("README.md"), "python")
    (properties,) = code_blocks(text_of("README.md"), "properties")
    job_file = tmp_path / "flights.py"
    job_file.write_text(example, encoding="utf-8")

    task = load_task_factory(job_file)()
    config = parse_config(in_force(read_properties(properties, "README.md")))

    assert callable(task.process)
    assert "flights-1" == config.job
    assert len([*example.splitlines(), *properties.splitlines()]) < EXAMPLE_LINES_MAX


def test_the_settings_of_the_demo_s_job_are_a_job_s() -> None:
    properties = text_of("examples/flight_delays.properties")

    assert "flight-delays-1" == parse_config(in_force(read_properties(properties, "flight_delays.properties"))).job


def test_the_secret_of_the_configuration_page_comes_from_the_environment() -> None:
    (properties,) = code_blocks(text_of("docs/reference/configuration.md"), "properties")
    settings = merge(file=read_properties(properties, "f"), environment={"KAFKA_PASSWORD": "hunter2"}, overrides=())

    assert Secret("hunter2") == in_force(settings)["systems.kafka.client.sasl.password"]


def test_the_grouper_of_the_planning_page_groups() -> None:
    (example,) = code_blocks(text_of("docs/guides/planning.md"), "python")
    names: dict[str, Any] = {}
    exec(example, names)  # our own page
    config = a_config(job_systemstreampartition_grouper_factory="grouping:EvenAndOdd")

    plan = plan_job(
        config, {SystemStream("kafka", "orders"): 4}, None, ["0"], groupers=Groupers(ssps=names["EvenAndOdd"]({}))
    )

    assert [("even", 2), ("odd", 2)] == [(task.name, len(task.ssp_kbs)) for task in plan.tasks]


def test_the_pages_for_newcomers_are_short() -> None:
    assert len(text_of("README.md").split()) <= 650
    assert len(text_of("CONTRIBUTING.md").split()) <= 700


def test_the_example_of_write_a_task_is_a_job(tmp_path: Path) -> None:
    example, _ = code_blocks(text_of("docs/tutorial/write-a-task.md"), "python")
    (tmp_path / "count.py").write_text(example, encoding="utf-8")
    (tmp_path / "count.properties").write_text(
        "job.name=count\ntask.inputs=kafka.words\nsystems.kafka.bootstrap.servers=localhost:1\n"
        "systems.kafka.samza.key.serde=string\nsystems.kafka.samza.msg.serde=json\n"
        "systems.kafka.samza.offset.default=oldest\nstores.counts.msg.serde=json\nlocal.store.dir=state\n"
    )

    run = run_task(tmp_path / "count.py", [("fruit", "apple"), ("fruit", "pear")])

    assert [1, 2] == [output.value["seen"] for output in run.outputs]
    assert {"fruit": 2} == run.state("counts")


def test_the_example_of_task_classes_is_a_job(tmp_path: Path) -> None:
    page = text_of("docs/guides/task-class.md")
    (example,), (properties,) = code_blocks(page, "python"), code_blocks(page, "properties")
    (explained,) = code_blocks(page, "text")
    (tmp_path / "totals.py").write_text(example, encoding="utf-8")
    (tmp_path / "totals.properties").write_text(properties, encoding="utf-8")

    run = run_task(
        tmp_path / "totals.py",
        [
            ("fruit", {"item": "apple", "amount": 2.5}),
            InputMessage(key="fruit", value=1.0, stream="kafka.refunds"),
            ("fruit", {"item": "pear", "amount": 4}),
        ],
    )

    assert [2.5, 5.5] == [output.value for output in run.outputs]
    assert {"fruit": 2} == run.state("count")
    settings = {setting.key: setting for setting in load_task_factory(tmp_path / "totals.py").declared.settings()}
    for key, value, place in (line.split() for line in explained.splitlines()):
        assert (value, place) == (settings[key].value, settings[key].place)


def test_the_example_of_state_is_a_job(tmp_path: Path) -> None:
    (example,) = code_blocks(text_of("docs/guides/state.md"), "python")
    (tmp_path / "recent.py").write_text(example, encoding="utf-8")
    (tmp_path / "recent.properties").write_text(
        "job.name=recent\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=state\n"
    )
    hour_ms = 3_600_000
    times_ms = [1, 2, 3, hour_ms, hour_ms + 2, hour_ms + 4]

    run = run_task(
        tmp_path / "recent.py",
        [InputMessage(key="a", value={"amount": time_ms % 10}, timestamp_ms=time_ms) for time_ms in times_ms],
    )

    # At the fifth message the first two are gone, at the last one the third is, too.
    assert [6.0] == [output.value for output in run.outputs]
    assert {"a": 6} == run.state("seen")
    assert [hour_ms, hour_ms + 2, hour_ms + 4] == list(run.state("recent")["a"])


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, [("a", 2), ("b", 1)]),
        (1, [("a", 2), ("b", 1)]),
        (2, [("a", 3.0), ("b", 1.0)]),
        (3, [("a", 3.0), ("b", 1.0)]),
    ],
)
def test_the_examples_of_time_are_jobs(tmp_path: Path, number: int, expected: list[tuple[str, float]]) -> None:
    example = code_blocks(text_of("docs/guides/time.md"), "python")[number]
    (tmp_path / "timed.py").write_text(example, encoding="utf-8")
    (tmp_path / "timed.properties").write_text(
        "job.name=timed\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=state\n"
    )

    messages, bounded = [("a", 1.0), ("b", 1.0), ("a", 2.0)], {"systems.kafka.samza.offset.end": "head"}
    run = run_task(tmp_path / "timed.py", messages, advance_ms=120_000, settings=bounded)

    assert expected == [(output.key, output.value) for output in run.outputs]


def test_the_example_of_testing_a_job_passes(tmp_path: Path) -> None:
    job, *tests = code_blocks(text_of("docs/guides/testing-your-job.md"), "python")
    (tmp_path / "shout.py").write_text(job, encoding="utf-8")
    # Those with brokers are among the integration tests.
    for number, test in enumerate(test for test in tests if "dev_cluster" not in test):
        (tmp_path / f"test_shout_{number}.py").write_text(test, encoding="utf-8")
    (tmp_path / "shout.properties").write_text(
        "job.name=shout\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=state\n"
    )

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_two_commands_come_first() -> None:
    first, *_ = code_blocks(text_of("README.md"), "bash")

    assert ["scripts/demo", "scripts/test"] == [line.split()[0] for line in first.splitlines()]
    assert text_of("README.md").index(first) < 400


def test_the_changelog_knows_the_version() -> None:
    assert f"\n## [{__version__}]" in text_of("CHANGELOG.md")


def test_decisions_are_numbered_without_a_gap_and_name_the_signs_that_they_are_wrong() -> None:
    pages = sorted((ROOT / "docs" / "internals" / "adr").glob("*.md"))
    headings = ("Context", "Decision", "Alternatives", "Consequences", "How we would know it was wrong")

    assert [f"{number:04d}" for number in range(1, len(pages) + 1)] == [page.name[:4] for page in pages]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]} ")
        assert [f"## {heading}" for heading in headings] == re.findall(r"^## .*$", text, re.MULTILINE), page.name
