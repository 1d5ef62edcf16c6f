"""`samzapy class-archive`: make jobs start faster on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from samzapy.adapters.maven.fetch import cache_root, jar_paths, jars_there
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import connector_lock
from samzapy.adapters.spark.class_archive import archive_path, make_archive
from samzapy.adapters.spark.class_archive import of_worker as worker_environment
from samzapy.cli.output.option import is_json, output_option, print_json, print_result
from samzapy.runtime.spark_submit import check_host, environment_of_spark


@click.command("class-archive")
@click.option(
    "--of-worker", is_flag=True, help="Print the environment for a Spark worker whose drivers use the archive."
)
@click.option("--remove", is_flag=True, help="Remove the archive; jobs start without it again.")
@output_option()
def class_archive(of_worker: bool, remove: bool, output: str) -> None:
    """Make an archive of Spark's classes on this machine.

    It is for `samzapy run` and containers started here. A JVM maps the archive instead of loading the classes one by
    one. It fits one Java and one Spark, takes a minute, and 200 MB. The first container on a machine makes one in the
    background, so this command is for images, and for machines with SAMZAPY_CLASS_ARCHIVE=manual.
    """
    if remove:
        removed = archive_path(cache_root(), jars_there(connector_lock()))
        removed.unlink(missing_ok=True)
        if is_json(output):
            print_json({"removed": str(removed)}, output)
        return
    find_java()
    check_host([])
    path = made_archive({})
    if not of_worker:
        print_result({"archive": str(path)}, str(path), output)
        return
    variables = sorted(worker_environment({}, jars_there(connector_lock()), path).items())
    text = "\n".join(f"{name}={shlex.quote(value)}" for name, value in variables)
    if is_json(output):
        print_json(dict(variables), output)
    else:
        click.echo(text)


def made_archive(more: Mapping[str, str]) -> Path:
    """The archive that `environment_of_spark` finds.

    It is made first, unless it is there.

    Args:
        more: further variables for the archive's JVM, besides those of every Spark here.

    Raises:
        EnvironmentMissingError: a jar could not be fetched, Spark did not start, or its JVM makes no archives.
    """
    jars = jar_paths(connector_lock())
    path = archive_path(cache_root(), jars)
    make_archive(path, {**environment_of_spark(), **more}, jars)
    return path
