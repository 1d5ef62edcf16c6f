from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import samzapy


def names_for_type_checkers() -> Mapping[str, tuple[str, str]]:
    """The module and the name of each import under `TYPE_CHECKING`."""
    tree = ast.parse(Path(samzapy.__file__).read_text(encoding="utf-8"))
    (condition,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in condition.body if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: (str(one.module), name.name) for one in imports for name in one.names}


def output_of(code: str) -> str:
    """What a new Python process prints."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_the_exported_names_are_sorted_and_there() -> None:
    assert sorted(samzapy.__all__) == samzapy.__all__
    assert [] == [name for name in samzapy.__all__ if not hasattr(samzapy, name)]


def test_every_class_that_a_job_file_can_name_is_exported() -> None:
    """Submodules are attributes once imported; pytest adds `@py_builtins` and others.

    pytest rewrites the asserts of every file of a distribution that brings a plugin.
    """
    public = names_for_type_checkers().keys() | {
        name
        for name, value in vars(samzapy).items()
        if name.isidentifier() and not name.startswith("_")
        if name not in {"annotations", "TYPE_CHECKING"} and not hasattr(value, "__path__")
        if getattr(value, "__name__", "") != f"samzapy.{name}"
    }

    assert set(samzapy.__all__) == public


def test_every_exported_name_has_a_docstring() -> None:
    assert [] == [name for name in samzapy.__all__ if not getattr(samzapy, name).__doc__]


def test_a_name_is_the_same_for_type_checkers_and_at_run_time() -> None:
    """A process of its own, in which no earlier import can have set the names."""
    names = names_for_type_checkers()
    code = (
        "import importlib, samzapy\n"
        f"for name, (module, there) in {names!r}.items():\n"
        "    if getattr(samzapy, name) is not getattr(importlib.import_module(module), there): print(name)"
    )

    assert "" == output_of(code)


def test_the_names_of_the_package_are_listed_before_their_first_use() -> None:
    assert "set()" == output_of("import samzapy; print(set(samzapy.__all__) - set(dir(samzapy)))")


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    code = "import samzapy\ntry: samzapy.tasks\nexcept AttributeError as error: print(error)"

    assert "module 'samzapy' has no attribute 'tasks'" == output_of(code)


def test_all_names_can_be_imported_at_once() -> None:
    code = "import samzapy as s\nfrom samzapy import *\nprint({*s.__all__} - {*globals()})"

    assert "set()" == output_of(code)


def test_task_stays_the_decorator_after_its_module_is_imported() -> None:
    """The import of a module sets it as an attribute of its package."""
    code = (
        "import samzapy, samzapy.task, sys\n"
        "from samzapy.task import load_task_factory\n"
        "print(samzapy.task is sys.modules['samzapy.task'].task)"
    )

    assert "True" == output_of(code)


def test_importing_the_package_loads_nothing_that_only_a_job_file_uses() -> None:
    loaded = output_of("import sys, samzapy; print(*(name for name in sys.modules if name.startswith('samzapy.')))")

    own = {"durations", "errors", "model", "model.text", "task", "version"}
    assert {f"samzapy.{name}" for name in own} == set(loaded.split())


def test_importing_the_package_loads_no_client_and_no_engine() -> None:
    heavy = {
        "pyspark",
        "pandas",
        "msgspec",
        "asyncio",
        "confluent_kafka",
        "pyarrow",
        "lmdb",
        "fastavro",
        "jinja2",
        "starlette",
        "uvicorn",
        "click",
        "rich",
    }
    code = f"import sys, samzapy; print(*sorted({heavy!r} & set(sys.modules)))"

    assert "" == output_of(code)


def test_type_checkers_of_job_files_see_the_package_s_types() -> None:
    from importlib import resources

    assert resources.files("samzapy").joinpath("py.typed").is_file()


def test_the_kit_is_reached_from_the_package_without_an_import_of_it() -> None:
    names = ["MemoryJob", "Message", "crash_anywhere", "run_task"]
    code = f"import samzapy as sz; print([getattr(sz.testing, name).__name__ for name in {names}])"

    assert str(names) == output_of(code)
