from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import samzapy
from samzapy.errors import TaskModuleError
from samzapy.task import is_loading_job_file, load_task_factory

WriteJob = Callable[[str], Path]


@pytest.fixture
def write_job(tmp_path: Path) -> Iterator[WriteJob]:
    """Writes a job file; the effects of loading it on this process are undone."""
    path, modules = list(sys.path), set(sys.modules)

    def write(text: str) -> Path:
        job = tmp_path / "job.py"
        job.write_text(text)
        return job

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name == "samzapy_job_file" or name.startswith("beside_"):
            del sys.modules[name]


def call(process: Callable[..., None]) -> list[Any]:
    """The calls of a task that appends to its collector."""
    seen: list[Any] = []
    process("envelope", seen, "context")
    return seen


FUNCTION = """
import samzapy

@samzapy.task
def job(envelope, collector, context):
    collector.append((envelope, context))

if __name__ == "__main__":
    samzapy.run()
"""

CLASS = """
import samzapy

@samzapy.task
class Job:
    made = 0

    def __init__(self):
        Job.made += 1
        self.number = Job.made

    def init(self, context):
        self.context = context

    def process(self, envelope, collector, context):
        collector.append((self.number, self.context))

    def close(self):
        self.number = -1
"""


def test_a_marked_function_is_the_task(write_job: WriteJob) -> None:
    loaded = load_task_factory(write_job(FUNCTION))()

    assert [("envelope", "context")] == call(loaded.process)
    assert (None, None) == (loaded.init, loaded.close)


def test_of_a_marked_class_each_call_makes_an_instance(write_job: WriteJob) -> None:
    factory = load_task_factory(write_job(CLASS))
    first, second = factory(), factory()
    assert first.init is not None and second.init is not None and first.close is not None

    first.init("c1")
    second.init("c2")

    assert [(1, "c1")] == call(first.process)
    assert [(2, "c2")] == call(second.process)
    first.close()
    assert [(-1, "c1")] == call(first.process)


def test_init_and_close_may_be_left_out(write_job: WriteJob) -> None:
    job = write_job("import samzapy\n@samzapy.task\nclass Job:\n    def process(self, e, c, x): c.append(e)\n")

    loaded = load_task_factory(job)()

    assert (None, None) == (loaded.init, loaded.close)
    assert ["envelope"] == call(loaded.process)


def test_a_class_without_process_is_refused_where_it_is_marked(write_job: WriteJob) -> None:
    job = write_job("import samzapy\n@samzapy.task\nclass Job:\n    pass\n")

    with pytest.raises(TaskModuleError, match=r"wanted a class with process\(envelope, collector, context\)"):
        load_task_factory(job)


@pytest.mark.parametrize(
    "text",
    [
        "async def job(e, c, x): c.append(e)\n",
        "def job(e, c, x): yield e\n",
        "async def job(e, c, x): yield e\n",
        "class Job:\n    async def process(self, e, c, x): c.append(e)\n",
        "class Job:\n    def process(self, e, c, x): c.append(e)\n    async def init(self, context): pass\n",
        "class Job:\n    def process(self, e, c, x): c.append(e)\n    def close(self): yield\n",
    ],
)
def test_a_file_that_a_call_would_not_run_is_refused(write_job: WriteJob, text: str) -> None:
    """Its messages would count as handled, and nothing of it would have happened."""
    with pytest.raises(TaskModuleError, match=r"wanted a plain function, found \S+ with `async` or `yield`"):
        load_task_factory(write_job(f"import samzapy\n@samzapy.task\n{text}"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def job(envelope): pass\n", "wanted job(envelope, collector, context), found job(envelope): too many"),
        ("def job(e, c, x, y): pass\n", "found job(e, c, x, y): missing a required argument: 'y'"),
        ("def job(e, c, x, *, y): pass\n", "found job(e, c, x, *, y): missing a required "),
        ("class Job:\n    def process(e, c, x): pass\n", "wanted Job.process(self, envelope, collector, context)"),
        (
            "class Job:\n    def process(self, e, c, x): pass\n    def init(self): pass\n",
            "wanted Job.init(self, context), found Job.init(self)",
        ),
        (
            "class Job:\n    def process(self, e, c, x): pass\n    def close(self, context): pass\n",
            "wanted Job.close(self), found Job.close(self, context)",
        ),
        (
            "class Job:\n    @staticmethod\n    def process(self, e, c, x): pass\n",
            "wanted Job.process(envelope, collector, context), found Job.process(self, e, c, x)",
        ),
        (
            "class Job:\n    def __init__(self, size): pass\n    def process(self, e, c, x): pass\n",
            "wanted Job(), found Job(size): missing a required argument: 'size'",
        ),
    ],
)
def test_a_file_that_every_call_would_fail_on_is_refused(write_job: WriteJob, text: str, expected: str) -> None:
    with pytest.raises(TaskModuleError, match=re.escape(expected)):
        load_task_factory(write_job(f"import samzapy\n@samzapy.task\n{text}"))


@pytest.mark.parametrize(
    "text",
    [
        "def job(e, c, x, more=1, *rest, **named): pass\n",
        "def job(*given): pass\n",
        "class Job:\n    @staticmethod\n    def process(e, c, x): pass\n    @classmethod\n    def init(cls, x): pass\n",
        "class Job:\n    def __init__(self, size=1): pass\n    def process(self, *given): pass\n",
        "class Base:\n    def process(self, e, c, x): pass\n@samzapy.task\nclass Job(Base): pass\n",
    ],
)
def test_a_file_that_can_be_called_is_taken(write_job: WriteJob, text: str) -> None:
    mark = "" if "@samzapy.task" in text else "@samzapy.task\n"
    load_task_factory(write_job(f"import samzapy\n{mark}{text}"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@samzapy.task\ndef job(e, c, x):\n    json.loads(e.value)\n", "line 4: name 'json' is not defined; import"),
        ("def help(v):\n    return jsn(v)\n@samzapy.task\ndef job(e, c, x): help(e)\n", "line 3: name 'jsn' is not"),
        ("@samzapy.task\ndef job(e, c, x):\n    [jsn(v) for v in e.value]\n", "line 4: name 'jsn' is not defined"),
        (
            "@samzapy.task\nclass Job:\n    def process(self, e, c, x):\n        jsn\n    def close(self): b\n",
            "line 5: name 'jsn' is not defined",
        ),
        (
            "from contextlib import ContextDecorator\n@samzapy.task\n@ContextDecorator()\ndef job(e, c, x):\n    jsn\n",
            "line 6: name 'jsn' is not defined",
        ),
    ],
)
def test_an_undefined_name_is_reported_before_anything_runs(write_job: WriteJob, text: str, problem: str) -> None:
    with pytest.raises(TaskModuleError, match=re.escape(problem)):
        load_task_factory(write_job(f"import samzapy\n{text}"))


@pytest.mark.parametrize(
    "text",
    [
        "import json\n@samzapy.task\ndef job(e, c, x): json.loads(e.value); len(LATER)\nLATER = 1\n",
        "def init():\n    global model\n    model = 1\n@samzapy.task\ndef job(e, c, x): init(); model\n",
        "def unused(): jsn\n@samzapy.task\ndef job(e, c, x): __name__, __file__\n",
        "@samzapy.task\ndef job(e, c, x):\n    try:\n        profile\n    except NameError:\n        pass\n",
        "@samzapy.task\ndef job(e, c, x):\n    globals()['model'] = 1\n    model\n",
        "from contextlib import ContextDecorator\n@samzapy.task\n@ContextDecorator()\ndef job(e, c, x): e\n",
        "@samzapy.task\nclass Job:\n    n = 1\n    def process(self, e, c, x): Job.n, __class__\n",
    ],
)
def test_a_name_that_is_there_or_may_come_is_taken(write_job: WriteJob, text: str) -> None:
    load_task_factory(write_job(f"import samzapy\n{text}"))


def test_a_file_without_a_task_is_named(write_job: WriteJob) -> None:
    with pytest.raises(TaskModuleError, match=r"job.py: wanted one function or class .* found none"):
        load_task_factory(write_job("import samzapy\ndef job(e, c, x): pass\n"))


def test_two_tasks_are_named(write_job: WriteJob) -> None:
    text = "import samzapy\n@samzapy.task\ndef b(e, c, x): pass\n@samzapy.task\ndef a(e, c, x): pass\n"

    with pytest.raises(TaskModuleError, match="found several: a, b"):
        load_task_factory(write_job(text))


def test_one_task_under_two_names_is_one_task(write_job: WriteJob) -> None:
    load_task_factory(write_job(FUNCTION + "\nsame = job\n"))


def test_a_class_that_extends_the_task_is_no_second_task(write_job: WriteJob) -> None:
    load_task_factory(write_job(CLASS + "\nclass Other(Job):\n    pass\n"))


def test_a_task_of_another_module_does_not_count(write_job: WriteJob, tmp_path: Path) -> None:
    (tmp_path / "beside_task.py").write_text("import samzapy\n@samzapy.task\ndef other(e, c, x): pass\n")

    loaded = load_task_factory(write_job("from beside_task import other\n" + FUNCTION))()

    assert [("envelope", "context")] == call(loaded.process)


def test_a_job_file_can_import_modules_beside_it(write_job: WriteJob, tmp_path: Path) -> None:
    (tmp_path / "beside_numbers.py").write_text("ANSWER = 42\n")
    job = write_job(
        "import samzapy\nfrom beside_numbers import ANSWER\n"
        "@samzapy.task\ndef job(e, collector, x):\n    collector.append(ANSWER)\n"
    )

    assert [42] == call(load_task_factory(job)().process)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import samzapy\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("def f():\n    raise SystemExit(3)\nf()\n", "line 2: SystemExit: 3"),
        ("import no_such_module_at_all\n", "line 1: ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        (
            "class Odd(BaseException):\n    def __str__(self):\n        return 7\nraise Odd\n",
            "line 4: Odd: <its text cannot be made: TypeError in __str__>",
        ),
    ],
)
def test_a_file_that_does_not_import_names_the_line_and_the_error(
    write_job: WriteJob, text: str, expected: str
) -> None:
    with pytest.raises(TaskModuleError, match=re.escape(expected)) as refused:
        load_task_factory(write_job(text))

    assert "job.py does not import" in str(refused.value)
    assert refused.value.__cause__ is not None
    assert not is_loading_job_file()


def test_the_line_is_named_also_when_the_path_is_relative(
    write_job: WriteJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job("import samzapy\n\n1 / 0\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(TaskModuleError, match="line 3: ZeroDivisionError"):
        load_task_factory(Path("job.py"))


def test_the_line_in_the_job_file_is_named_when_its_import_fails(write_job: WriteJob, tmp_path: Path) -> None:
    (tmp_path / "beside_broken.py").write_text("\n\n\nraise ValueError('deep')\n")

    with pytest.raises(TaskModuleError, match="line 2: ValueError: deep"):
        load_task_factory(write_job("import samzapy\nimport beside_broken\n"))


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_path_without_a_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(TaskModuleError, match="wanted a Python file with a task, found nothing at"):
        load_task_factory(tmp_path / name)


def test_run_without_the_guard_is_named_with_the_guard(write_job: WriteJob) -> None:
    with pytest.raises(TaskModuleError, match=re.escape('if __name__ == "__main__":')):
        load_task_factory(write_job("import samzapy\nsamzapy.run()\n"))


def test_a_job_file_is_being_loaded_only_while_it_is(write_job: WriteJob, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(samzapy, "seen_by_the_job_file", seen, raising=False)
    text = "import samzapy\nfrom samzapy.task import is_loading_job_file\n"
    job = write_job(text + "samzapy.seen_by_the_job_file.append(is_loading_job_file())\n" + FUNCTION)
    before = is_loading_job_file()

    load_task_factory(job)

    assert [False, True, False] == [before, *seen, is_loading_job_file()]
