from __future__ import annotations

import copy
import json
import pickle

import pytest

from samzapy.config import KEYS, Secret, is_secret, refuse_secret_arguments, without_secrets
from samzapy.config.secrets import argument_without_secret
from samzapy.errors import ConfigError
from samzapy.testing.builders import a_config

HUNTER = Secret("hunter2")


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url",
        "basic.auth.user.info",
        "schema.registry.Api_Key",
        "some.access.key",
        "private-key",
        "my.credentials",
        "db.passwd",
    ],
)
def test_a_client_property_that_sounds_like_a_secret_is_one(name: str) -> None:
    assert is_secret(f"systems.kafka.client.{name}")
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.username",
        "ssl.key.location",
        "ssl.keystore.type",
        "ssl.ca.pem",
        "key.linger",
        "authenticate.secret.file",
    ],
)
def test_other_settings_are_no_secrets(name: str) -> None:
    assert not is_secret(f"systems.kafka.client.{name}")


def test_none_of_our_own_keys_is_a_secret_whatever_the_name_of_a_store_stream_or_system() -> None:
    for key in KEYS:
        for name in ("tokens", "password-resets"):
            ours = key.name.replace("<name>", name).replace("<stream>", name).replace("<system>", name)
            assert not is_secret(ours), ours
    assert is_secret("systems.tokens.client.sasl.password")


def test_a_secret_is_never_shown() -> None:
    config = a_config(systems_kafka_client_sasl_password="hunter2")
    shown = [f"{HUNTER}", f"{HUNTER!r}", f"{HUNTER:>10}", str(HUNTER), f"{[HUNTER]}", str({"a": HUNTER})]

    assert [] == [text for text in (*shown, repr(config), str(dict(config.properties))) if "hunter2" in text]
    with pytest.raises(TypeError):
        json.dumps(HUNTER)
    with pytest.raises(TypeError):
        "".join([HUNTER])  # type: ignore[list-item]
    assert "hunter2" not in json.dumps(HUNTER, default=str)
    assert not hasattr(HUNTER, "__dict__")


def test_a_secret_reaches_the_client() -> None:
    config = a_config(systems_kafka_client_sasl_password="hunter2")

    for copied in (config, pickle.loads(pickle.dumps(config)), copy.deepcopy(config)):
        assert HUNTER == copied.client_properties("kafka")["sasl.password"]
    assert "hunter2" == HUNTER.reveal()
    assert HUNTER != Secret("hunter3") and HUNTER != "hunter2"


def test_a_message_is_cleaned_of_all_secrets() -> None:
    secrets = [Secret("ab"), Secret("abc"), Secret("")]

    assert "found *** and ***!" == without_secrets("found abc and ab!", secrets)


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("systems.kafka.client.sasl.password=hunter2=", "systems.kafka.client.sasl.password=***"),
        ("systems.kafka.client.sasl.jaas.config=a password=hunter2", "systems.kafka.client.sasl.jaas.config=***"),
        ("spark.ssl.keyPassword=hunter2", "spark.ssl.keyPassword=***"),
        ("--conf=spark.ssl.keyPassword=hunter2", "--conf=spark.ssl.keyPassword=***"),
        ("stores.tokens.msg.serde=json", "stores.tokens.msg.serde=json"),
        ("local[4]", "local[4]"),
        ("/opt/tokens.jar", "/opt/tokens.jar"),
        ("--jars=/opt/tokens.jar", "--jars=/opt/tokens.jar"),
        ("sasl.password:hunter2", "***"),
        ("systems.kafka.client.sasl.password=${env:PW}", "systems.kafka.client.sasl.password=${env:PW}"),
        ("systems.kafka.client.sasl.password=${env:PW}2", "systems.kafka.client.sasl.password=***"),
        ("systems.kafka.client.sasl.password=", "systems.kafka.client.sasl.password="),
    ],
)
def test_an_argument_of_a_command_is_shown_without_a_secret(argument: str, shown: str) -> None:
    assert shown == argument_without_secret(argument)


@pytest.mark.parametrize(
    "value",
    [
        "-Djavax.net.ssl.trustStorePassword=changeit",
        "-Xmx1g -Da=b -Djavax.net.ssl.trustStorePassword=changeit",
        "-Da='b' '-Ddb.password=hunter2'",
        "jdbc:postgresql://db-1/flights?user=ada&password=hunter2",
        "-Durl=jdbc:db?password=hunter2",
        'module required username="ada" password="hunter2";',
        "a=1,api.key=hunter2",
        "-Dpassword=${env:PW}2",
        "-javaagent:/opt/agent.jar=token=hunter2",
    ],
)
def test_a_secret_in_the_value_of_an_option_is_not_shown(value: str) -> None:
    assert "spark.driver.extraJavaOptions=***" == argument_without_secret(f"spark.driver.extraJavaOptions={value}")
    assert "--driver-java-options=***" == argument_without_secret(f"--driver-java-options={value}")


@pytest.mark.parametrize(
    "argument",
    [
        "spark.driver.extraJavaOptions=-Xmx1g -Da=b -XX:+UseG1GC -Djavax.net.ssl.trustStore=/etc/trust.jks",
        "spark.driver.extraJavaOptions=-Djava.security.auth.login.config=/etc/jaas.conf -Duser.timezone=UTC",
        "spark.driver.extraJavaOptions=-Dssl.key.location=/etc/token.pem",
        "spark.driver.extraJavaOptions=-Ddb.password=${env:PW} -Da='${env:B}'",
        "spark.driver.extraJavaOptions=-Ddb.password=",
        "spark.files=/data/token=abc/part=1/x.csv,tokens/day=1/y.csv",
        "spark.jars=file:/opt/tokens=1.jar",
        "spark.yarn.tags=a=b,c=d",
        "cluster.process.hosts=tokens=a,secrets=b",
        "task.inputs=kafka.password=1",
    ],
)
def test_ordinary_settings_in_a_value_are_shown(argument: str) -> None:
    assert argument == argument_without_secret(argument)


def test_a_command_line_takes_no_secret_in_the_value_of_an_option() -> None:
    option = "spark.driver.extraJavaOptions=-Djavax.net.ssl.trustStorePassword=changeit"

    with pytest.raises(ConfigError, match=r"extraJavaOptions=\*\*\*: wanted nothing secret") as refused:
        refuse_secret_arguments(["--conf", option])
    assert "changeit" not in str(refused.value)


def test_a_command_line_takes_the_name_of_a_variable_and_no_secret() -> None:
    refuse_secret_arguments(["systems.kafka.client.sasl.password=${env:PW}", "--master", "local[2]"])

    with pytest.raises(ConfigError, match=r"password=\*\*\*: wanted nothing secret .*env:NAME") as refused:
        refuse_secret_arguments(["job.id=7", "systems.kafka.client.sasl.password=hunter2"])
    assert "hunter2" not in str(refused.value)
