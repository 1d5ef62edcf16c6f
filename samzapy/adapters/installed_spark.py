"""Find the Spark of a job.

It is PySpark of a release that samzapy has the connector's jars for. Several may be importable: `PYTHONPATH` and
`SPARK_HOME` often name another installation, and both come before the one that pip installed beside samzapy. This
module looks at files and never imports PySpark, which takes a second.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from samzapy.errors import EnvironmentMissingError

RELEASES: Final = ("4.0", "4.1", "4.2")
"""Minor releases of Spark, as in `setup.cfg`. `adapters/maven/spark-kafka-<release>.lock` has the jars of each."""

_WANTED = f"{', '.join(RELEASES[:-1])} or {RELEASES[-1]}"
_VERSION = re.compile(r"""^__version__[^=\n]*=\s*["']([^"'+\n]+)""", re.MULTILINE)


def pyspark_home() -> Path:
    """The directory of the first PySpark on `sys.path` of one of `RELEASES`.

    Below spark-submit, PySpark comes out of a zip, which has no jars; then it is the Spark of SPARK_HOME.

    Raises:
        EnvironmentMissingError: there is none; the text has the other releases.
    """
    home = _directory(_supported())
    return home if home.is_dir() or "SPARK_HOME" not in os.environ else Path(os.environ["SPARK_HOME"])


def spark_version() -> str:
    """The version of the PySpark in `pyspark_home`, as 4.2.0.

    Raises:
        EnvironmentMissingError: there is none of a release in `RELEASES`.
    """
    return _version(_supported())


def spark_release() -> str:
    """The minor release of the PySpark in `pyspark_home`; one of `RELEASES`.

    Raises:
        EnvironmentMissingError: there is none of a release in `RELEASES`.
    """
    return _release(_supported())


def pyspark_jar(artifact: str) -> Path:
    """The jar `<artifact>-<version>.jar` that PySpark ships."""
    jar_dir = pyspark_home() / "jars"
    jars = sorted(jar_dir.glob(f"{artifact}-[0-9]*.jar"))
    if not jars:
        raise EnvironmentMissingError(
            f"wanted pyspark's {artifact} jar, found none in {jar_dir}; reinstall pyspark with pip"
        )
    return jars[0]


def refuse_other_pyspark() -> None:
    """Raise EnvironmentMissingError if `import pyspark` gives another release.

    The supported ones are `RELEASES`. Below spark-submit its JVM has that release too, because spark-submit puts its
    own PySpark first.
    """
    spec = next(iter(_importable(sys.path)), None)
    if spec is None or _release(spec) in RELEASES:
        return
    raise EnvironmentMissingError(
        f"wanted PySpark {_WANTED}, found {_version(spec)} in {_directory(spec)}; unset SPARK_HOME and "
        "PYTHONPATH, or start the job with `samzapy run`, which takes the right one"
    )


def prefer_unpacked_modules(path: list[str]) -> None:
    """Take the zip files of PySpark and Py4J off `path`.

    They stay unless Python finds the same modules as files without them. spark-submit puts its zip files first. Python
    keeps no compiled modules for a zip, so it would compile PySpark again in each process, for half a second. An
    installation by pip has both, and they are the same.
    """
    for entry in [entry for entry in path if entry.endswith(os.path.join("python", "lib", "pyspark.zip"))]:
        home = Path(entry).parents[2]
        others = [one for one in path if Path(one).parent != Path(entry).parent or not one.endswith(".zip")]
        specs = [PathFinder.find_spec(module, others) for module in ("pyspark", "py4j")]
        places = [_directory(spec) for spec in specs if spec is not None and spec.origin is not None]
        if places == [home, home.parent / "py4j"]:
            path[:] = others


def submit_option(option: str) -> str:
    """Quote an option for SPARK_SUBMIT_OPTS and similar variables.

    Spark and the JVM split them at blanks.
    """
    return f'"{option}"' if " " in option else option


def _supported() -> ModuleSpec:
    importable = _importable(sys.path)
    spec = next((spec for spec in importable if _release(spec) in RELEASES), None)
    if spec is None:
        others = "; ".join(f"{_version(spec)} in {_directory(spec)}" for spec in importable) or "none"
        raise EnvironmentMissingError(
            f"wanted PySpark {_WANTED} beside samzapy, found {others}; "
            f"run `pip install 'pyspark~={RELEASES[-1]}.0'` in the environment of samzapy"
        )
    return spec


def _importable(path: Iterable[str]) -> list[ModuleSpec]:
    """Each `pyspark` that can be imported from `path`, in the order of `path`."""
    specs = (PathFinder.find_spec("pyspark", [entry]) for entry in dict.fromkeys(path))
    return [spec for spec in specs if spec is not None and spec.origin is not None]


def _directory(spec: ModuleSpec) -> Path:
    return Path(str(spec.origin)).parent


def _version(spec: ModuleSpec) -> str:
    get_data = getattr(spec.loader, "get_data", None)
    try:
        text = get_data(str(_directory(spec) / "version.py")).decode() if get_data is not None else ""
    except OSError:
        text = ""
    matched = _VERSION.search(text)
    return "no known release" if matched is None else matched.group(1)


def _release(spec: ModuleSpec) -> str:
    return ".".join(_version(spec).split(".")[:2])
