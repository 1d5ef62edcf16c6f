"""`samzapy class-archive`: a machine on which jobs start sooner."""

from __future__ import annotations

import click

from samzapy.adapters.maven.fetch import cache_root
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.spark.class_archive import archive_path, make_archive
from samzapy.cli.run_job import environment_of_spark


@click.command("class-archive")
@click.option("--remove", is_flag=True, help="Remove it: jobs start without it again.")
def class_archive(remove: bool) -> None:
    """Make an archive of Spark's classes on this machine, for `samzapy run` and containers started here.

    A JVM maps it at its start instead of loading the classes one by one. It is of one Java and one Spark: make it
    anew after a change of either (--remove first). It takes half a minute, and 160 MB.
    """
    path = archive_path(cache_root())
    if remove:
        path.unlink(missing_ok=True)
        return
    find_java()
    make_archive(path, environment_of_spark())
    click.echo(str(path))
