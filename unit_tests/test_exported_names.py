from __future__ import annotations

import subprocess
import sys

import samzapy


def test_the_exported_names_are_sorted_and_there() -> None:
    assert sorted(samzapy.__all__) == samzapy.__all__
    assert [] == [name for name in samzapy.__all__ if not hasattr(samzapy, name)]


def test_every_class_that_a_job_file_can_name_is_exported() -> None:
    """Submodules are attributes once imported; pytest adds `@py_builtins` and others.

    pytest rewrites the asserts of every file of a distribution that brings a plugin.
    """
    public = {
        name
        for name, value in vars(samzapy).items()
        if name.isidentifier() and not name.startswith("_")
        if name != "annotations" and not hasattr(value, "__path__")
        if getattr(value, "__name__", "") != f"samzapy.{name}"
    }

    assert set(samzapy.__all__) == public


def test_every_exported_name_has_a_docstring() -> None:
    assert [] == [name for name in samzapy.__all__ if not getattr(samzapy, name).__doc__]


def test_importing_the_package_loads_no_client_and_no_engine() -> None:
    heavy = {
        "pyspark",
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

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "" == ran.stdout.strip()


def test_type_checkers_of_job_files_see_the_package_s_types() -> None:
    from importlib import resources

    assert resources.files("samzapy").joinpath("py.typed").is_file()
