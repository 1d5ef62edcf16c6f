from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.config import KEYS, Secret, Setting, Source, in_force, merge, parse_config, read_properties
from samzapy.config.secrets import is_secret
from samzapy.errors import ConfigError, UnknownConfigKeyError


def read(text: str) -> dict[str, object]:
    return {**in_force(read_properties(text, "job.properties"))}


def merged(*, file: str = "", environment: dict[str, str] | None = None, overrides: tuple[str, ...] = ()) -> object:
    settings = merge(file=read_properties(file, "f"), environment=environment or {}, overrides=overrides)
    return in_force(settings)


# --- the properties file ---


def test_a_properties_file_may_use_equals_colons_or_spaces_and_comments() -> None:
    text = "# comment\n! comment\n\na=1\n b : 2 \nc 3\nd = e = f\nempty=\nbare\n"

    assert {"a": "1", "b": "2", "c": "3", "d": "e = f", "empty": "", "bare": ""} == read(text)


def test_a_backslash_at_the_end_continues_the_line() -> None:
    text = "task.inputs=kafka.a,\\\n    kafka.b,\\\n  # kafka.c\njob.name=x\\\\\n"

    properties = read(text)

    # In a continued line # is text, as in Java; two backslashes are no continuation.
    assert {"task.inputs": "kafka.a,kafka.b,# kafka.c", "job.name": "x\\"} == properties


def test_a_continuation_at_the_end_of_the_file_is_the_end_of_the_line() -> None:
    assert {"a": "1"} == read("a=1\\")


def test_the_error_of_a_repeated_key_names_the_file_and_the_line() -> None:
    with pytest.raises(ConfigError, match=re.escape("job.properties:4: a is set twice; keep one of the two lines")):
        read("a=1\nb=\\\n2\na=1\n")


def test_all_problems_of_a_file_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        read("a=1\na=2\nb=1\nb=2\n=x\n")

    assert [
        "- job.properties:2: a is set twice; keep one of the two lines",
        "- job.properties:4: b is set twice; keep one of the two lines",
        "- job.properties:5: wanted key=value, found a line that begins with '='",
    ] == str(refused.value).splitlines()[1:]


def test_all_wrong_variables_and_overrides_are_reported_at_once() -> None:
    with pytest.raises(UnknownConfigKeyError) as refused:
        merged(environment={"SAMZAPY_SET_A": "x", "SAMZAPY_SET_B": "y"}, overrides=("nothing", "job.id=1", "=2"))

    assert 5 == len(str(refused.value).splitlines())


def test_a_line_without_a_key_names_the_file_and_the_line_and_does_not_repeat_it() -> None:
    """It may be the rest of a password."""
    with pytest.raises(ConfigError, match="job.properties:2: wanted key=value, found a line that begins with '='"):
        read("a=1\n=\\\nhunter2\n")
    with pytest.raises(ConfigError) as refused:
        read("=hunter2")
    assert "hunter2" not in str(refused.value)


keys = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True).filter(lambda key: not is_secret(key))
values = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S"), exclude_characters="\\"), max_size=20)


@given(st.dictionaries(keys, values, max_size=8))
def test_every_key_and_value_that_is_written_is_read_back(properties: dict[str, str]) -> None:
    text = "".join(f"{key} = {value}\n" for key, value in properties.items())

    assert properties == read(text)


def test_each_setting_has_its_source() -> None:
    text = "# comment\njob.name = flights\ntask.inputs = a,\\\n  b\nsystems.kafka.client.sasl.password=hunter2\n"

    name, inputs, password = read_properties(text, "job.properties")

    assert Setting(key="job.name", value="flights", source=Source.FILE, place="job.properties:2") == name
    assert ("a,b", "job.properties:3") == (inputs.value, inputs.place)
    assert (Secret("hunter2"), "job.properties:5") == (password.value, password.place)


# --- which one counts ---


def test_set_wins_over_the_environment_and_that_over_the_file() -> None:
    properties = merged(
        file="job.name=file\njob.id=file\nprocessor.id=file\ntask.inputs=kafka.a\n",
        environment={"SAMZAPY_SET_JOB_NAME": "env", "SAMZAPY_SET_JOB_ID": "env", "HOME": "/root"},
        overrides=("job.name=set=1", " task.inputs = kafka.b "),
    )

    assert {
        "job.name": "set=1",
        "job.id": "env",
        "processor.id": "file",
        "task.inputs": "kafka.b",
    } == properties


def test_the_last_of_two_overrides_of_one_key_wins() -> None:
    assert {"job.id": "2"} == merged(overrides=("job.id=1", "job.id=2"))


def test_an_environment_variable_that_names_no_key_names_the_nearest() -> None:
    with pytest.raises(
        UnknownConfigKeyError, match="SAMZAPY_SET_JOB_NAM names no config key; did you mean SAMZAPY_SET_JOB_NAME"
    ):
        merged(environment={"SAMZAPY_SET_JOB_NAM": "x"})


@pytest.mark.parametrize("override", ["job.name", "=x", " =x"])
def test_an_override_that_is_no_key_and_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="wanted --set key=value"):
        merged(overrides=(override,))


@pytest.mark.parametrize("override", ["systems.kafka.client.sasl.password:hunter2", "password hunter2"])
def test_an_override_that_sounds_like_a_secret_is_not_repeated(override: str) -> None:
    with pytest.raises(ConfigError, match="wanted --set key=value") as refused:
        merged(overrides=(override,))

    assert "hunter2" not in str(refused.value)


def test_no_two_keys_share_an_environment_variable() -> None:
    names = [key.name.replace(".", "_").upper() for key in KEYS if "<" not in key.name]

    assert sorted(set(names)) == sorted(names)


# --- ${env:NAME} ---

PASSWORD = "systems.kafka.client.sasl.password"


def test_a_value_may_name_environment_variables_in_whole_or_in_part_in_every_source() -> None:
    properties = merged(
        file=f"{PASSWORD}=${{env:PW}}\nsystems.kafka.bootstrap.servers=${{env:HOST}}:90${{env:PORT}}\n",
        environment={"PW": "hunter2", "HOST": "broker", "PORT": "92", "SAMZAPY_SET_JOB_ID": "${env:PORT}"},
        overrides=("job.name=flights-${env:HOST}",),
    )

    assert {
        PASSWORD: Secret("hunter2"),
        "systems.kafka.bootstrap.servers": "broker:9092",
        "job.id": "92",
        "job.name": "flights-broker",
    } == properties


def test_the_place_of_a_value_names_its_variables_and_not_their_values() -> None:
    (password,) = merge(
        file=read_properties(f"{PASSWORD}=a${{env:PW}}${{env:PX}}\n", "f"),
        environment={"PW": "hunter2", "PX": "x"},
        overrides=(),
    )

    assert ("f:1, with $PW, $PX", Source.FILE) == (password.place, password.source)
    assert "hunter2" not in repr(password)


@pytest.mark.parametrize("text", ["${env:}", "${env:NOT_SET}", "a${env:NOT SET}b", "${env:PW}${env:NOT_SET}"])
def test_a_variable_that_is_not_set_is_refused_by_name_where_it_counts(text: str) -> None:
    file = read_properties(f"job.name=a\ntask.inputs=b\n{PASSWORD}={text}\n", "f")
    settings = merge(file=file, environment={"PW": "hunter2"}, overrides=())

    with pytest.raises(
        ConfigError, match=f"{PASSWORD}: wanted the environment variable .*NOT.SET|no name"
    ) as refused:
        parse_config(in_force(settings))

    assert "hunter2" not in str(refused.value)
    overridden = merge(file=file, environment={"GIVEN": "x"}, overrides=[f"{PASSWORD}=${{env:GIVEN}}"])
    assert Secret("x") == parse_config(in_force(overridden)).secrets[PASSWORD]


def test_a_secret_of_a_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match=f"{PASSWORD}=.*: wanted nothing secret on a command line") as refused:
        merge(file=(), environment={"PW": "hunter2"}, overrides=[f"{PASSWORD}=${{env:PW}}-hunter2"])

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("text", ["$PW", "${PW}", "${file:/x:PW}", "$${PW}", "{env:PW}"])
def test_a_text_that_is_no_reference_is_kept(text: str) -> None:
    assert {"job.name": text} == merged(file=f"job.name={text}\n", environment={"PW": "hunter2"})
