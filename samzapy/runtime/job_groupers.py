"""Loads a job's own groupers from the configured `module:Class`.

The class comes only from code beside the job file, and its name only from this process's own configuration, never from
a topic (law L10): a new leader loads the classes that its own operator configured.
"""

from __future__ import annotations

from pathlib import Path

from samzapy.config import JobConfig
from samzapy.errors import GrouperError, SamzapyError
from samzapy.model.text import error_text
from samzapy.plan.groupers import Groupers, ssp_grouper_from, task_name_grouper_from
from samzapy.task import load_from_directory


def load_groupers(config: JobConfig, directory: Path) -> Groupers:
    """Load the groupers that `config` names.

    They are in `directory`, beside the job file.

    Raises:
        TaskModuleError: there is no such module or class, or it does not import.
        GrouperError: the class cannot be made from the configuration, or has no suitable method `group`.
    """
    ssps = f"job.systemstreampartition.grouper.factory={config.ssp_grouper_factory}"
    tasks = f"task.name.grouper.factory={config.task_name_grouper_factory}"
    return Groupers(
        ssps=ssp_grouper_from(_made(config.ssp_grouper_factory, ssps, config, directory), ssps)
        if config.ssp_grouper_factory is not None
        else None,
        tasks=task_name_grouper_from(_made(config.task_name_grouper_factory, tasks, config, directory), tasks)
        if config.task_name_grouper_factory is not None
        else None,
    )


def _made(name: str, setting: str, config: JobConfig, directory: Path) -> object:
    factory = load_from_directory(directory, name, setting)
    try:
        grouper: object = factory(dict(config.properties))
    except (SamzapyError, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit included: the process would end without a reason.
        raise GrouperError(
            f"{setting}: wanted a class that is made with the job's properties as its one argument, found that making "
            f"it fails with {error_text(error)}"
        ) from error
    return grouper
