"""A job's own groupers are loaded from beside the job file, and from nowhere else."""

import pytest

from samzapy.errors import GrouperError, TaskModuleError
from samzapy.plan.groupers import Groupers
from samzapy.runtime.job_groupers import load_groupers
from samzapy.testing.builders import a_config

OWN = """
class Ssps:
    def __init__(self, config):
        self.name = config["job.name"]

    def group(self, previous, ssps):
        return {self.name: ssps}


class Tasks:
    def __init__(self, config):
        pass

    def group(self, tasks, processor_ids, previous_containers):
        return []


class Broken:
    def __init__(self, config):
        raise KeyError("customers")


class Leaving:
    def __init__(self, config):
        raise SystemExit(7)


class Unfit:
    pass
"""


@pytest.fixture
def directory(job_directory):
    (job_directory / "own_groupers.py").write_text(OWN)
    return job_directory


def loaded(directory, name):
    return load_groupers(a_config(job_systemstreampartition_grouper_factory=name), directory)


def test_a_job_without_own_groupers_has_none(directory):
    assert Groupers() == load_groupers(a_config(), directory)


def test_both_groupers_are_made_from_the_job_s_properties(directory):
    config = a_config(
        job_systemstreampartition_grouper_factory="own_groupers:Ssps", task_name_grouper_factory="own_groupers:Tasks"
    )

    groupers = load_groupers(config, directory)

    assert {"flights": ["ssp"]} == groupers.ssps.group({}, ["ssp"])
    assert [] == groupers.tasks.group([], [], [])


def test_a_module_may_be_in_a_package_of_the_job(directory):
    (directory / "own_package").mkdir()
    (directory / "own_package" / "__init__.py").write_text("")
    (directory / "own_package" / "grouping.py").write_text(OWN)

    assert loaded(directory, "own_package.grouping:Ssps").ssps is not None


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("os:system", r"wanted a module of the job's own code, .*os\.py, found no such file"),
        ("samzapy.testing.builders:a_config", "wanted a module of the job's own code"),
        ("own_groupers:Nobody", "wanted a class Nobody in .*found none"),
        ("own_groupers:__doc__", "wanted a class __doc__"),
    ],
)
def test_code_from_other_directories_and_missing_names_are_refused(directory, name, names):
    with pytest.raises(TaskModuleError, match=rf"grouper\.factory={name}: .*{names}"):
        loaded(directory, name)


def test_a_module_that_has_the_name_of_another_is_refused(directory):
    (directory / "json.py").write_text(OWN)

    with pytest.raises(TaskModuleError, match="another called json, .*give yours another name"):
        loaded(directory, "json:Ssps")


def test_a_module_that_does_not_import_is_named_with_its_line(directory):
    (directory / "own_broken.py").write_text("\n1 / 0\n")

    with pytest.raises(TaskModuleError, match=r"own_broken\.py does not import: line 2: ZeroDivisionError"):
        loaded(directory, "own_broken:Ssps")


def test_a_job_file_whose_run_is_not_guarded_does_not_start_a_job(directory):
    (directory / "own_job.py").write_text(f"import samzapy\n{OWN}\nsamzapy.run()\n")

    with pytest.raises(TaskModuleError, match="__main__"):
        loaded(directory, "own_job:Ssps")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("Broken", "making it fails with KeyError: 'customers'"),
        ("Unfit", "making it fails with TypeError"),
        ("Leaving", "making it fails with SystemExit: 7"),
    ],
)
def test_a_class_that_cannot_be_made_is_named(directory, name, names):
    with pytest.raises(GrouperError, match=names):
        loaded(directory, f"own_groupers:{name}")
