"""The target of a command: options before the environment before the profile."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from samzapy.cli.main import main, samzapy
from samzapy.cli.target.address import Layer, Target, resolved, target_of, with_target
from samzapy.cli.target.profiles import Profile, Profiles, profiles_path, read_profiles, write_profiles
from samzapy.errors import ConfigError, RejectedError

NOTHING = Layer("command line")
FILE = Path("flights.properties")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path)}


def use(environment: dict[str, str], **fields: object) -> Path:
    path = profiles_path(environment)
    profile = Profile(**fields)  # type: ignore[arg-type]
    write_profiles(path, Profiles().with_profile("staging", profile))
    return path


def target(command_line: Layer, environment: dict[str, str], profile: str | None = None) -> Target:
    return target_of(command_line, profile, environment, wants_job=True)


def names(target: Target) -> tuple[Path | None, str | None, str | None]:
    return target.config_file, target.job, target.bootstrap_servers


def test_a_whole_target_on_the_command_line_takes_nothing_else(environment: dict[str, str]) -> None:
    use(environment, config_file=Path("/other"), overrides={"job.id": "7"})
    environment |= {"SAMZAPY_CONFIG": "other", "SAMZAPY_BOOTSTRAP_SERVERS": "other:1"}

    by_name = target(NOTHING._replace(job="a-1", bootstrap_servers="here:1"), environment)
    by_file = target(NOTHING._replace(config_file=FILE), environment)

    assert (None, "a-1", "here:1") == names(by_name)
    assert (FILE, None, None) == names(by_file)
    assert ([], []) == (by_name.sources, by_file.sources)
    assert [] == by_name.overrides


def test_the_environment_completes_the_command_line(environment: dict[str, str]) -> None:
    environment["SAMZAPY_BOOTSTRAP_SERVERS"] = "there:1"

    filled = target(NOTHING._replace(job="a-1"), environment)

    assert (None, "a-1", "there:1") == names(filled)
    assert ["environment: cluster there:1"] == filled.sources


def test_the_profile_in_use_comes_after_the_environment(environment: dict[str, str]) -> None:
    path = use(environment, job="b-1", bootstrap_servers="profile:1", overrides={"job.id": "7"})
    alone = target(NOTHING, environment)
    environment["SAMZAPY_BOOTSTRAP_SERVERS"] = "there:1"

    behind = target(NOTHING, environment)

    assert (None, "b-1", "profile:1") == names(alone)
    assert ["job.id=7"] == alone.overrides
    assert (None, "b-1", "there:1") == names(behind)
    assert f"profile staging ({path}): job b-1, --set job.id=7" in behind.sources


def test_a_set_of_the_command_line_is_stronger_than_one_of_the_profile(environment: dict[str, str]) -> None:
    use(environment, job="b-1", bootstrap_servers="profile:1", overrides={"job.id": "7"})

    assert ["job.id=7", "job.id=8"] == target(NOTHING._replace(overrides=["job.id=8"]), environment).overrides


def test_a_profile_that_is_named_comes_before_the_environment(environment: dict[str, str]) -> None:
    use(environment, job="b-1", bootstrap_servers="profile:1")
    environment["SAMZAPY_CONFIG"] = "other"

    assert (None, "b-1", "profile:1") == names(target(NOTHING, environment, "staging"))
    assert (None, "a-1", "profile:1") == names(target(NOTHING._replace(job="a-1"), environment, "staging"))


def test_the_variable_chooses_a_profile_that_is_not_in_use(environment: dict[str, str]) -> None:
    profiles = Profiles().with_profile("one", Profile(job="one-1", bootstrap_servers="one:1"))
    profiles = profiles.with_profile("two", Profile(job="two-1", bootstrap_servers="two:1"))
    write_profiles(profiles_path(environment), profiles)

    assert "one-1" == target(NOTHING, environment).job
    assert "two-1" == target(NOTHING, environment | {"SAMZAPY_PROFILE": "two"}).job


def test_a_command_without_a_job_needs_a_cluster_only() -> None:
    layers = [NOTHING._replace(bootstrap_servers="here:1"), Layer("environment", config_file=FILE)]

    assert (None, None, "here:1") == names(resolved(layers, wants_job=False))
    assert (FILE, None, "here:1") == names(resolved(layers))


@pytest.mark.parametrize("profile", ["staging", "prod"])
def test_an_unknown_profile_is_refused_with_the_known_ones(environment: dict[str, str], profile: str) -> None:
    use(environment, job="b-1")

    with pytest.raises(RejectedError, match=r"\$SAMZAPY_PROFILE: wanted one of the profiles \(staging\), found 'x'"):
        target(NOTHING, environment | {"SAMZAPY_PROFILE": "x"})


def test_an_error_names_the_source_of_the_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAMZAPY_CONFIG", "/nowhere/flights.properties")

    with pytest.raises(SystemExit) as ended:
        main(["job", "status"])

    stderr = capsys.readouterr().err
    assert 2 == ended.value.code
    assert "wanted the job's properties in /nowhere/flights.properties" in stderr
    assert "samzapy: the target comes from environment: properties file /nowhere/flights.properties" in stderr


def connection(*arguments: str) -> dict[str, object]:
    """The Kafka settings of a command with these options."""
    received: dict[str, object] = {}

    @click.command()
    @with_target
    def command(target: Target) -> None:
        address = target.address()
        received.update(address.connection.settings({}), job=address.job)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert 0 == result.exit_code
    return received


def test_settings_of_the_command_line_count_for_a_job_that_is_named() -> None:
    settings = connection(
        *("--job", "a-1", "--bootstrap-servers", "here:1", "--set", "systems.kafka.client.security.protocol=SSL")
    )

    assert ("a-1", "here:1") == (settings["job"], settings["bootstrap.servers"])
    assert "SSL" == settings["security.protocol"]


def test_the_cluster_of_a_named_job_may_be_set_as_in_a_file() -> None:
    settings = connection("--job", "a-1", "--set", "systems.kafka.bootstrap.servers=here:1")

    assert "here:1" == settings["bootstrap.servers"]


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("job.name=b", "--set job.name: wanted the job's name from --job"),
        ("job.container.leese.ms=1", "job.container.leese.ms"),
        ("job.container.lease.ms=soon", "job.container.lease.ms"),
    ],
)
def test_a_wrong_setting_is_refused_for_a_job_that_is_named(override: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        connection("--job", "a-1", "--bootstrap-servers", "here:1", "--set", override)


def profile(*arguments: str) -> Result:
    return CliRunner().invoke(samzapy, ["profile", *arguments])


def test_a_profile_is_set_shown_used_and_deleted() -> None:
    assert 0 == profile("set", "one", "--job", "a-1", "--bootstrap-servers", "one:1").exit_code
    assert 0 == profile("set", "two", "--config", "two.properties", "--set", "job.id=2").exit_code
    assert 0 == profile("use", "two").exit_code

    shown = profile("show", "-o", "json").stdout
    assert '"profile": "two"' in shown and f'"config": "{os.getcwd()}/two.properties"' in shown
    assert '"job.id": "2"' in shown
    assert 0 == profile("delete", "two").exit_code
    assert ["one"] == [*read_profiles(profiles_path(os.environ)).profiles]
    assert 2 == profile("show").exit_code or profile("show").exception is not None


@pytest.mark.parametrize("name", ["my-staging", "_", "a_-", "7"])
def test_a_profile_may_have_a_name_of_letters_digits_dashes_and_underscores(name: str) -> None:
    assert 0 == profile("set", name, "--job", "a-1").exit_code

    assert f'"profile": "{name}"' in profile("show", name, "-o", "json").stdout
    assert 0 == profile("use", name).exit_code


@pytest.mark.parametrize("name", ["", "-staging", "-", "my staging", "a\n", "a.b", "\u00e9"])
def test_another_name_of_a_profile_is_refused_with_the_letters_that_it_may_have(name: str) -> None:
    refused = profile("set", "--job", "a-1", "--", name)

    assert isinstance(refused.exception, ConfigError)
    assert "wanted a name of letters, digits, - and _ that does not begin with -" in str(refused.exception)


def test_the_file_of_profiles_belongs_to_its_user_only() -> None:
    profile("set", "one", "--job", "a-1")

    path = profiles_path(os.environ)
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="found .* with mode 0666"):
        read_profiles(path)


def test_a_profile_takes_a_reference_and_no_secret() -> None:
    key = "systems.kafka.client.sasl.password"

    refused = profile("set", "one", "--job", "a-1", "--set", f"{key}=hunter2")
    taken = profile("set", "one", "--job", "a-1", "--set", f"{key}=${{env:PASSWORD}}")

    assert isinstance(refused.exception, ConfigError) and "hunter2" not in str(refused.exception)
    assert 0 == taken.exit_code


def test_a_secret_that_was_written_by_hand_is_refused() -> None:
    path = use(dict(os.environ), job="a-1")
    path.write_text('{"current": null, "profiles": {"a": {"set": {"job.coordinator.secret": "hunter2"}}}}')

    with pytest.raises(ConfigError) as refused:
        read_profiles(path)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"profiles": {"a": 1}}',
        '{"profiles": {"a": {"job": 1}}}',
        '{"profiles": {"a": {"jobb": "a"}}}',
        '{"profiles": {"a": {"set": [1]}}}',
        '{"profiles": {}, "current": "a"}',
        '{"profiles": {"a b": {}}}',
        "\udcff",
    ],
)
def test_a_malformed_file_of_profiles_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "profiles.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    path.chmod(0o600)

    with pytest.raises(ConfigError):
        read_profiles(path)


def test_a_relative_directory_of_settings_is_ignored() -> None:
    assert Path.home() / ".config" / "samzapy" / "profiles.json" == profiles_path({"XDG_CONFIG_HOME": "here"})
