from __future__ import annotations

import pytest

from samzapy.config import (
    FACTOR_KEY,
    Explanation,
    Secret,
    Setting,
    Source,
    explain,
    keys_to_explain,
    merge,
    read_properties,
)
from samzapy.errors import ConfigError, UnknownConfigKeyError

LEASE = "job.container.lease.ms"


def settings(text: str = "", *overrides: str, **environment: str) -> tuple[Setting, ...]:
    return merge(file=read_properties(text, "job.properties"), environment=environment, overrides=overrides)


def explained(key: str, text: str = "", *overrides: str, **environment: str) -> Explanation:
    return explain(key, settings(text, *overrides, **environment))


def test_without_a_setting_the_default_counts_and_everything_else_would_be_stronger() -> None:
    explanation = explained(LEASE)

    assert ("15000", Source.DEFAULT, "default") == (explanation.value, explanation.origin, explanation.place)
    assert (
        "job.container.lease.ms=... in the properties file",
        "the environment variable SAMZAPY_SET_JOB_CONTAINER_LEASE_MS",
        "--set job.container.lease.ms=...",
    ) == explanation.stronger
    assert "milliseconds, from 0" == explanation.values
    assert explanation.meaning.startswith("How long a container keeps working")


def test_the_strongest_place_counts_and_the_others_are_shown_in_order() -> None:
    explanation = explained(
        LEASE, f"# lease\n{LEASE}=1\n", f"{LEASE}=3", f"{LEASE}=4", SAMZAPY_SET_JOB_CONTAINER_LEASE_MS="2"
    )

    assert ("4", Source.SET, "--set") == (explanation.value, explanation.origin, explanation.place)
    assert [
        ("1", "job.properties:2"),
        ("2", "$SAMZAPY_SET_JOB_CONTAINER_LEASE_MS"),
        ("3", "--set"),
        ("4", "--set"),
    ] == [(one.value, one.place) for one in explanation.given]
    assert () == explanation.stronger


def test_an_empty_value_leaves_the_default() -> None:
    explanation = explained("job.id", "job.id=\n")

    assert ("1", Source.DEFAULT) == (explanation.value, explanation.origin)


def test_a_stream_without_a_setting_of_its_own_has_its_system_s_and_that_is_named() -> None:
    key = "systems.kafka.streams.orders-a.samza.offset.default"
    system, pattern = "systems.kafka.samza.offset.default", "systems.kafka.streams.~orders-.*.samza.offset.default"

    by_default = explained(key)
    by_system = explained(key, f"{system}=oldest\n")
    by_pattern = explained(key, f"{system}=oldest\n{pattern}=upcoming\n")
    by_name = explained(key, f"{system}=oldest\n{pattern}=upcoming\n{key}=oldest\n")

    assert ("upcoming", "default") == (by_default.value, by_default.place)
    assert ("oldest", f"{system} (job.properties:1)") == (by_system.value, by_system.place)
    assert ("upcoming", f"{pattern} (job.properties:2)") == (by_pattern.value, by_pattern.place)
    assert ("oldest", "job.properties:3") == (by_name.value, by_name.place)
    assert [pattern] == [one.key for one in explained(system, f"{pattern}=upcoming\n").narrower]


def test_a_pattern_that_is_no_regular_expression_leaves_the_setting_of_the_system() -> None:
    explanation = explained(
        "systems.kafka.streams.orders.samza.offset.default",
        "systems.kafka.samza.offset.default=oldest\nsystems.kafka.streams.~orders-[.samza.offset.default=upcoming\n",
    )

    assert ("oldest", "systems.kafka.samza.offset.default (job.properties:1)") == (
        explanation.value,
        explanation.place,
    )


def test_a_secret_is_explained_and_not_shown() -> None:
    explanation = explained("systems.kafka.client.sasl.password", "systems.kafka.client.sasl.password=hunter2\n")

    assert explanation.secret
    assert (Secret("hunter2"), "job.properties:1") == (explanation.value, explanation.place)
    assert "hunter2" not in repr(explanation)


def test_recorded_values_show_beside_the_file_and_count_without_one() -> None:
    recorded = {LEASE: Setting(key=LEASE, value="9", source=Source.STREAM, place="offset 3")}

    with_file = explain(LEASE, settings("job.name=a\n"), recorded)
    without = explain(LEASE, settings(), recorded)

    assert ("15000", Source.DEFAULT, recorded[LEASE]) == (with_file.value, with_file.origin, with_file.recorded)
    assert ("9", Source.STREAM, "offset 3") == (without.value, without.origin, without.place)
    assert 3 == len(without.stronger)


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (LEASE, f"{LEASE}=soon\n", "wanted milliseconds (digits only), found 'soon'"),
        ("job.name", "", "wanted job.name, found nothing"),
        (LEASE, f"{LEASE}=5\n", ""),
    ],
)
def test_a_value_that_would_be_refused_is_marked(key: str, text: str, problem: str) -> None:
    assert problem in explained(key, text).problem
    assert bool(problem) == bool(explained(key, text).problem)


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(UnknownConfigKeyError, match="did you mean job.container.lease.ms"):
        keys_to_explain("job.container.leas.ms", ())
    with pytest.raises(UnknownConfigKeyError, match="pass --conf spark.executor.memory"):
        keys_to_explain("spark.executor.memory", ())


def test_without_a_key_all_that_are_set_are_meant_and_with_a_pattern_those_it_matches() -> None:
    given = settings("stores.b.msg.serde=json\njob.name=x\nstores.a.msg.serde=json\n", "job.id=2")

    assert ("job.id", "job.name", "stores.a.msg.serde", "stores.b.msg.serde") == keys_to_explain(None, given)
    assert ("stores.a.msg.serde", "stores.b.msg.serde") == keys_to_explain("stores.*", given)
    assert ("stores.a.msg.serde", "stores.b.msg.serde") == keys_to_explain("stores.<name>.msg.serde", given)
    assert {LEASE, "job.container.lost.ms"} < set(keys_to_explain("job.container.*", given))
    with pytest.raises(ConfigError, match="which matches none"):
        keys_to_explain("nothing.*", given)


def test_a_pattern_that_could_be_a_key_itself_names_the_keys_that_it_matches() -> None:
    protocol, servers = "systems.kafka.client.security.protocol", "systems.kafka.bootstrap.servers"
    given = settings(f"{protocol}=SSL\n{servers}=h:1\nstores.a.msg.serde=json\n")

    assert (protocol,) == keys_to_explain("systems.kafka.client.*", given)
    assert (servers,) == keys_to_explain("systems.*.bootstrap.servers", given)
    assert ("stores.a.msg.serde",) == keys_to_explain("stores.*.msg.serde", given)
    with pytest.raises(ConfigError, match="which matches none"):
        keys_to_explain("systems.other.client.*", given)


def test_a_pattern_of_streams_is_a_key_and_no_pattern_of_keys() -> None:
    key = "systems.kafka.streams.~orders-.*.samza.offset.default"

    assert (key,) == keys_to_explain(key, ())


@pytest.mark.parametrize(
    ("handed_in", "text", "value"),
    [
        # Without a new value, or with the submitted one, the factor of the operators counts.
        (None, "", "8"),
        ("2", "job.elasticity.factor=2\n", "8"),
        ("2", "", "8"),
        # Set to another value, it acts at the next start.
        ("2", "job.elasticity.factor=4\n", "4"),
        (None, "job.elasticity.factor=1\n", "1"),
    ],
)
def test_a_factor_set_by_operators_counts_until_the_configuration_changes(
    handed_in: str | None, text: str, value: str
) -> None:
    def setting(value: str, place: str) -> dict[str, Setting]:
        return {FACTOR_KEY: Setting(key=FACTOR_KEY, value=value, source=Source.STREAM, place=place)}

    recorded = {} if handed_in is None else setting(handed_in, "offset 3")

    explanation = explain(FACTOR_KEY, settings(text), recorded, setting("8", "request u, offset 90"))

    assert value == explanation.value
    assert (value == "8") == (explanation.place == "request u, offset 90")


def test_a_variable_that_is_not_set_is_a_problem_of_the_key_alone() -> None:
    text = "systems.kafka.client.sasl.password=${env:PW}\njob.name=flights\n"

    missing, given = (explained("systems.kafka.client.sasl.password", text, **env) for env in ({}, {"PW": "hunter2"}))

    assert "wanted the environment variable PW" in missing.problem
    assert ("", "job.properties:1, with $PW", Source.FILE) == (given.problem, given.place, given.origin)
    assert Secret("hunter2") == given.value
    assert "" == explained("job.name", text).problem
