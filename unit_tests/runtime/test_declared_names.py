from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.errors import ExitCode, TaskModuleError
from samzapy.runtime.declared_names import check_names, undeclared
from unit_tests.fixtures.container_worlds import a_job

FUNCTION = "import samzapy\n@samzapy.task\ndef job(e, c, x):\n"
CONFIG = a_job(task_intermediate_regrouped_partitions="4")


def in_a_function(*lines: str) -> str:
    return FUNCTION + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("x.store('seen').put(1)", "wanted store 'seen', found sums; declare it with stores.seen.msg.serde=..."),
        ("x.store(name='seen')", "wanted store 'seen', found sums"),
        (
            "x.intermediate('by-n')",
            "wanted the intermediate stream 'by-n', found regrouped; declare it with task.interm",
        ),
        ("c.send(x.intermediate('by-n'), 1, key=e.key)", "wanted the intermediate stream 'by-n'"),
        ("c.send('', 1)", "wanted an output stream of the job's cluster (kafka.orders), found ''"),
        (
            "c.send(stream='kafka.', value=1)",
            "wanted an output stream of the job's cluster (kafka.orders), found 'kafka.'",
        ),
        ("[x.store('seen') for _ in e.value]", "wanted store 'seen'"),
        ("def late(): x.store('seen')", "wanted store 'seen'"),
    ],
)
def test_an_undeclared_name_is_reported_with_its_line(line: str, problem: str) -> None:
    (undeclared_name,) = undeclared(in_a_function("pass", line), CONFIG)

    assert undeclared_name.startswith(f"line 5: {problem}")


def test_every_line_with_an_undeclared_name_is_reported() -> None:
    text = in_a_function("x.store('one')", "c.send('', 1)", "x.store('sums')", "x.store('two')")

    assert ["line 4", "line 5", "line 7"] == [problem.partition(":")[0] for problem in undeclared(text, CONFIG)]


@pytest.mark.parametrize(
    "lines",
    [
        ("x.store('sums').put(1)", "c.send('out', 1)", "c.send(x.intermediate('regrouped'), 1, key=1)"),
        ("x.store(e.value)", "c.send(f'out-{e.value}', 1)"),
        ("if x.config.get('keeps'):", "    x.store('seen')"),
        ("if KEEPS:", "    x.store('seen')"),
        ("keeps = x.config.get('keeps')", "if keeps:", "    x.store('seen')"),
        ("KEEPS and x.store('seen')",),
        ("match e.value:", "    case 1 if KEEPS: x.store('seen')"),
        ("try:", "    x.store('seen')", "except Exception:", "    pass"),
        ("y = {}", "y.store('seen')"),
    ],
)
def test_declared_and_optional_names_are_accepted(lines: tuple[str, ...]) -> None:
    assert [] == undeclared(in_a_function(*lines), CONFIG)


@pytest.mark.parametrize(
    "lines",
    [
        ("if e.value > 3:", "    x.store('seen')"),
        ("n = e.value + 1", "if len(n) > 3:", "    x.store('seen')"),
        ("match e.value:", "    case 1: x.store('seen')"),
        ("for n in e.value:", "    if n:", "        x.store('seen')"),
    ],
)
def test_a_branch_that_a_message_decides_about_is_looked_at(lines: tuple[str, ...]) -> None:
    assert 1 == len(undeclared(in_a_function(*lines), CONFIG))


def test_a_class_is_looked_at_in_process_and_init() -> None:
    text = (
        "from samzapy import task\n@task\nclass Job:\n    def init(self, given):\n        given.store('one')\n"
        "    def process(self, e, c, x):\n        x.store('two')\n        if self.keeps: x.store('left out')\n"
        "class Other:\n    def process(self, e, c, x):\n        x.store('three')\n"
    )

    assert ["line 5: wanted store 'one'", "line 7: wanted store 'two'"] == [
        problem.partition(",")[0] for problem in undeclared(text, CONFIG)
    ]


def test_a_job_file_with_such_a_name_is_refused_with_all_of_them(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(in_a_function("x.store('one')", "x.store('two')"))

    with pytest.raises(TaskModuleError, match="job.py: line 4: wanted store 'one'") as refused:
        check_names(job, CONFIG)

    assert "job.py: line 5: wanted store 'two'" in str(refused.value)
    assert ExitCode.USAGE == refused.value.exit_code


@pytest.mark.parametrize(
    "start", [b"# -*- coding: latin-1 -*-\n# caf\xe9\n", b"\xef\xbb\xbf# caf\xc3\xa9\n\n"], ids=["latin-1", "BOM"]
)
def test_a_job_file_is_read_in_its_own_encoding(tmp_path: Path, start: bytes) -> None:
    job = tmp_path / "job.py"
    job.write_bytes(start + in_a_function("x.store('sums')").encode())
    check_names(job, CONFIG)

    job.write_bytes(start + in_a_function("x.store('seen')").encode())
    with pytest.raises(TaskModuleError, match="job.py: line 6: wanted store 'seen'"):
        check_names(job, CONFIG)
