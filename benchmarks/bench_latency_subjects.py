"""The subjects of `scripts/bench latency`: samzapy and other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench_subjects import BIN, JOBS, Place, Subject, plain_client, samzapy_job

_PACKAGES: Mapping[str, str] = {"quix": "quixstreams", "bytewax": "bytewax[kafka]"}
_QUIET = ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false")
_KEYED = {"stores.counts.msg.serde": "bytes"}
_NO_TAIL = {"task.tail.ms": "0"}
_FACTOR = {"job.elasticity.factor": "4"}
_INSTALL_WITHIN_S = 300

PLAN: Sequence[tuple[str, str]] = (
    *((name, rate) for name in ("samzapy", "samzapy-keyed") for rate in ("200", "2000")),
    *(("samzapy", rate) for rate in ("50", "10000", "sparse")),
    ("samzapy-keyed-factor-4", "200"),
    *(("samzapy-no-tail", rate) for rate in ("50", "200", "2000", "10000")),
    ("samzapy-no-tail-keyed", "200"),
    *(("spark", rate) for rate in ("200", "2000")),
    *(("client", rate) for rate in ("50", "200", "2000", "10000")),
    *(("quix", rate) for rate in ("200", "2000")),
    ("quix-keyed", "200"),
    ("bytewax", "200"),
)
"""Subject and rate of each row of the whole table; forty minutes."""


def latency_subjects(settings: Mapping[str, str]) -> Mapping[str, Subject]:
    """By the name on the command line; `settings` go to the subjects on samzapy."""

    def ours(name: str, *given: Mapping[str, str]) -> Subject:
        merged = {key: value for one in (settings, *given) for key, value in one.items()}
        return samzapy_job(name, "count_stamped.py" if _KEYED in given else "copy_each.py", merged)

    return {
        "samzapy": ours("samzapy"),
        "samzapy-keyed": ours("samzapy, keyed", _KEYED),
        "samzapy-factor-4": ours("samzapy, factor 4", _FACTOR),
        "samzapy-keyed-factor-4": ours("samzapy, keyed, factor 4", _KEYED, _FACTOR),
        "samzapy-no-tail": ours("samzapy without tails", _NO_TAIL),
        "samzapy-no-tail-keyed": ours("samzapy without tails, keyed", _KEYED, _NO_TAIL),
        "spark": exact_spark("(b) Spark, exactly once by hand"),
        "client": replace(plain_client("(c) confluent-kafka loop, transactional"), command=_prompt_client),
        "quix": _rival("quix-streams, exactly once", "quix"),
        "quix-keyed": _rival("quix-streams, exactly once, keyed", "quix", "--keyed"),
        "bytewax": _rival("bytewax, at least once", "bytewax"),
    }


def exact_spark(name: str) -> Subject:
    def command(place: Place) -> Sequence[str]:
        return [
            *(str(BIN / "spark-submit"), *_QUIET, "--master", f"local[{place.cores}]"),
            *(
                str(JOBS / "plain_spark_exact.py"),
                *_topics(place),
                "--checkpoint",
                str(place.directory / "checkpoint"),
            ),
        ]

    return Subject(name=name, command=command, checkpoint=lambda place: None)


def _topics(place: Place) -> Sequence[str]:
    return "--servers", place.servers, "--topic", place.topic, "--output", place.output


def _prompt_client(place: Place) -> Sequence[str]:
    return [
        *(sys.executable, str(JOBS / "plain_client.py"), *_topics(place), "--prompt"),
        *("--partitions", str(place.partitions)),
    ]


def _rival(name: str, package: str, *options: str) -> Subject:
    def command(place: Place) -> Sequence[str]:
        state = ("--state", str(place.directory / "state")) if package == "quix" else ()
        return [str(_python_of(package)), str(JOBS / f"plain_{package}.py"), *_topics(place), *state, *options]

    return Subject(name=name, command=command, checkpoint=lambda place: None)


def _python_of(package: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "samzapy" / "bench" / _PACKAGES[package].partition("[")[0] / "bin" / "python"


def missing(subject: str) -> str | None:
    """The reason why `subject` cannot run; None if it can.

    A package of another project is installed into an environment of its own, once. It never comes into samzapy's.
    """
    name = subject.partition("-")[0]
    if name not in _PACKAGES:
        return None
    python, package = _python_of(name), _PACKAGES[name]
    if (python.parent.parent / "installed").exists():
        return None
    try:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(python.parent.parent)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_WITHIN_S)
    except subprocess.CalledProcessError as error:
        return f"{package} does not install: {(error.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    except subprocess.TimeoutExpired:
        return f"{package} does not install within {_INSTALL_WITHIN_S} s"
    (python.parent.parent / "installed").touch()
    return None
