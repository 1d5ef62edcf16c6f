"""Where a processor is: the host's name, or the answer of the job's own provider."""

import socket

import pytest

from samzapy.errors import ConfigError, TaskModuleError
from samzapy.model.location import LocationId
from samzapy.runtime.job_location import location_of_this_processor
from samzapy.testing.builders import a_config

OWN = """
from samzapy import LocationId


class InRack:
    def __init__(self, config):
        self.host = f"node-of-{config['job.name']}"

    def location_id(self):
        return LocationId(self.host, "rack-1")


class Broken(InRack):
    def location_id(self):
        return LocationId("two words")


class Leaving(InRack):
    def location_id(self):
        raise SystemExit(7)


class Wordy(InRack):
    def location_id(self):
        return "node-1"
"""


@pytest.fixture
def directory(job_directory):
    (job_directory / "own_location.py").write_text(OWN)
    return job_directory


def located(directory, name):
    return location_of_this_processor(a_config(locationid_provider_factory=name), directory)


def test_without_a_provider_the_location_is_the_host_s_name(directory):
    assert LocationId(socket.gethostname()) == location_of_this_processor(a_config(), directory)


def test_a_job_s_own_provider_is_made_from_the_job_s_properties(directory):
    assert LocationId("node-of-flights", "rack-1") == located(directory, "own_location:InRack")


def test_the_launcher_s_host_counts_and_the_provider_gives_the_fault_domain(directory, monkeypatch):
    monkeypatch.setenv("SAMZAPY_HOST", "host-a")

    assert LocationId("host-a", "rack-1") == located(directory, "own_location:InRack")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("own_location:Broken", ConfigError, "fails with ValueError: host: wanted .* found 'two words'"),
        ("own_location:Leaving", ConfigError, "fails with SystemExit: 7"),
        ("own_location:Wordy", ConfigError, "wanted a samzapy.LocationId .* found 'node-1'"),
        ("own_location:Nobody", TaskModuleError, "wanted a class Nobody"),
        ("os:getcwd", TaskModuleError, "found no such file"),
    ],
)
def test_a_provider_that_cannot_be_used_is_refused_by_name(directory, name, error, words):
    with pytest.raises(error, match=f"locationid.provider.factory={name}: .*{words}"):
        located(directory, name)


@pytest.mark.parametrize("suffix", ["ANY_HOST", "LAST_SEEN", "FORCE_RESTART_LAST_SEEN", "STANDBY"])
def test_no_host_may_have_a_name_that_requests_use_for_a_destination(suffix):
    with pytest.raises(ValueError, match=f"found {suffix}, which stands for others"):
        LocationId(suffix)


@pytest.mark.parametrize("given", [("",), ("a b",), ("h", "r 1"), ("x" * 401,), ("h\u00e4",)])
def test_a_location_must_be_a_text_that_a_record_can_hold(given):
    with pytest.raises(ValueError, match="wanted ASCII"):
        LocationId(*given)
