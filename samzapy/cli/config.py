"""`samzapy config`: explain effective values and validate a configuration.

Read-only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from samzapy.cli.output.groups import HintingGroup
from samzapy.cli.output.option import is_json, output_option, print_json, print_result
from samzapy.cli.output.table import print_table
from samzapy.cli.output.terminal import printable
from samzapy.cli.target.address import Target, job_file_option, timeout_option, with_target
from samzapy.cli.target.lazy_completion import completes
from samzapy.config import FACTOR_KEY, Explanation, Setting, Source, explain, keys_to_explain, merge
from samzapy.errors import TaskModuleError
from samzapy.model.topics import coordinator_topic
from samzapy.runtime.job_config import declared_beside, load_config, read_settings

if TYPE_CHECKING:
    from samzapy.runtime.job_address import JobAddress

_PREFIX = "config/"


@click.group(cls=HintingGroup)
def config() -> None:
    """Show the effective value of a key and its source; validate a configuration."""


@config.command("explain")
@click.argument("key", required=False, shell_complete=completes("keys"))
@with_target
@timeout_option
@output_option()
def explain_keys(
    key: str | None,
    target: Target,
    timeout_s: float,
    output: str,
) -> None:
    """Show the value of KEY, its source and meaning, and how to override it.

    KEY may be a pattern, `job.container.*`; without KEY all keys that are set are listed. The environment of this shell
    is read as at a start. With --job, --bootstrap-servers or --profile the values on the job's coordinator
    stream are shown too; without them no cluster is needed. Secrets are shown as ***.

    \b
    Examples:
      samzapy config explain job.container.lease.ms
      samzapy config explain --config flights.properties
      samzapy config explain 'job.*' --job flights-1 --bootstrap-servers localhost:9092
    """
    config_file = target.config_file
    if config_file is not None:
        settings = read_settings(config_file, target.overrides, os.environ, _declared(config_file))
    else:
        settings = merge(file=(), environment=os.environ, overrides=target.overrides)
    recorded, commanded = None, None
    if target.is_asked_for:
        recorded, commanded = _recorded(target.address_to_read(timeout_s))
    keys = keys_to_explain(key, settings, {**(commanded or {}), **(recorded or {})})
    explanations = [explain(name, settings, recorded, commanded) for name in keys]
    if is_json(output):
        print_json([_json(item) for item in explanations], output)
    elif keys == (key,):
        _print_one(explanations[0], recorded is not None)
    else:
        _print_all(explanations, recorded is not None)


@config.command()
@partial(with_target, has_job=False, has_servers=False)
@job_file_option
@output_option()
def check(target: Target, job_file: Path | None, output: str) -> None:
    """Validate a configuration as a start would, as far as possible without a cluster.

    The job file is loaded too: that of --job-file, or else the one beside the properties file, if there is one.

    \b
    Examples:
      samzapy config check --config flights.properties
      samzapy config check --config new.properties --job-file flights.py
    """
    from samzapy.runtime.job_groupers import load_groupers

    config_file = target.file()
    config = load_config(config_file, job_file, target.overrides, os.environ)
    config.bootstrap_servers(config.default_system)
    load_groupers(config, (job_file or config_file).absolute().parent)
    text = f"{config_file}: job {config.job}, {len(config.properties)} keys are set, nothing is wrong with them"
    print_result({"config": str(config_file), "job": config.job, "keys": len(config.properties)}, text, output)


def _declared(config_file: Path) -> Sequence[Setting]:
    """The settings that the job file beside the properties declares.

    None if it does not import.
    """
    try:
        return declared_beside(config_file)
    except TaskModuleError as error:
        click.echo(f"samzapy: the declarations of the job file are not shown: {error}", err=True)
        return ()


def _recorded(address: JobAddress) -> tuple[Mapping[str, Setting], Mapping[str, Setting]]:
    """The recorded configuration, and the values that requests set.

    Each has its position and time.
    """
    from samzapy.runtime.job_address import coordinator_records
    from samzapy.stream.audit import ForeignEntry, UnreadableEntry, history, time_text
    from samzapy.stream.keys import Namespace

    topic = coordinator_topic(address.job)
    recorded: dict[str, Setting] = {}
    commanded: dict[str, Setting] = {}
    unreadable = 0
    for entry in history(coordinator_records(address), topic=topic):
        if isinstance(entry, UnreadableEntry):
            unreadable += 1
            continue
        if isinstance(entry, ForeignEntry):
            continue
        if entry.key == Namespace.FACTOR:
            commanded.pop(FACTOR_KEY, None)
            if entry.after is not None:
                # A factor stays after the configuration or the request that set it is gone.
                uuid = entry.after["uuid"]
                source = f"request {uuid}" if uuid else "an earlier configuration"
                commanded[FACTOR_KEY] = Setting(
                    key=FACTOR_KEY,
                    value=str(entry.after["factor"]),
                    source=Source.STREAM,
                    place=f"{source}, offset {entry.offset}, {time_text(entry.timestamp_ms)}",
                )
            continue
        if not entry.key.startswith(_PREFIX):
            continue
        name = entry.key.removeprefix(_PREFIX)
        if entry.after is None:
            recorded.pop(name, None)
        else:
            place = f"offset {entry.offset}, {time_text(entry.timestamp_ms)}"
            recorded[name] = Setting(key=name, value=str(entry.after["value"]), source=Source.STREAM, place=place)
    if unreadable:
        click.echo(
            f"samzapy: {unreadable} record(s) of {topic} cannot be read; see `samzapy stream replay`", err=True
        )
    return recorded, commanded


def _print_one(explanation: Explanation, asked: bool) -> None:
    lines = [
        ("value", _value(explanation)),
        ("from", _origin(explanation)),
        ("refused", explanation.problem),
        ("type", f"secret, {explanation.values}" if explanation.secret else explanation.values),
        ("default", "required" if explanation.required else _text(explanation.default)),
        (
            "meaning",
            explanation.meaning + (" May differ between the processes of a job." if explanation.of_process else ""),
        ),
        *(("given", f"{one.value} in {one.place}") for one in explanation.given[:-1]),
        *(("narrower", f"{one.key}={one.value} ({one.place})") for one in explanation.narrower),
        *(("stronger", way) for way in explanation.stronger),
    ]
    if asked:
        lines.append(("recorded", _recorded_text(explanation)))
    click.echo(printable(explanation.key))
    for name, text in lines:
        if text:
            click.echo(f"  {name:<10}{printable(text)}")


def _print_all(explanations: Sequence[Explanation], asked: bool) -> None:
    refused = any(item.problem for item in explanations)
    names = ("key", "value", "from", *(("recorded",) if asked else ()), *(("refused",) if refused else ()))
    rows = []
    for item in explanations:
        recorded = (_recorded_text(item),) if asked else ()
        rows.append((item.key, _value(item), _origin(item), *recorded, item.problem)[: len(names)])
    print_table(names, rows, nothing="0 keys are set")


def _value(explanation: Explanation) -> str:
    return _text(explanation.value)


def _text(value: object) -> str:
    return "(not set)" if value is None or value == "" else str(value)


def _origin(explanation: Explanation) -> str:
    return (
        explanation.place if explanation.origin is not Source.STREAM else f"{explanation.origin}, {explanation.place}"
    )


def _recorded_text(explanation: Explanation) -> str:
    """The value that the job was started with; a key of one process is not recorded."""
    if explanation.of_process:
        return "never, it belongs to one process"
    return (
        "(not set)"
        if explanation.recorded is None
        else f"{explanation.recorded.value} ({explanation.recorded.place})"
    )


def _json(explanation: Explanation) -> Mapping[str, object]:
    return {
        "key": explanation.key,
        "value": None if explanation.value is None else str(explanation.value),
        "origin": explanation.origin.value,
        "place": explanation.place,
        "given": [_setting_json(one) for one in explanation.given],
        "values": explanation.values,
        "default": explanation.default,
        "required": explanation.required,
        "secret": explanation.secret,
        "ofProcess": explanation.of_process,
        "meaning": explanation.meaning,
        "stronger": list(explanation.stronger),
        "narrower": [_setting_json(one) for one in explanation.narrower],
        "recorded": None if explanation.recorded is None else _setting_json(explanation.recorded),
        "problem": explanation.problem,
    }


def _setting_json(setting: Setting) -> Mapping[str, str]:
    return {"key": setting.key, "value": str(setting.value), "origin": setting.source.value, "place": setting.place}
