"""Settings of librdkafka (left) and of Java (right).

An integration test asks a broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.adapters.spark.java_properties import jaas, java_properties
from samzapy.config import Secret, Text, revealed
from samzapy.errors import ConfigError

PLAIN = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "u",
    "sasl.password": "hunter2",
}
FILES = {"/c.pem": "CERTIFICATE", "/k.pem": "KEY"}


def plain(properties: Mapping[str, Text]) -> dict[str, str]:
    return {name: revealed(text) for name, text in properties.items()}


def of_stream_tokenizer(text: str) -> str:
    """A quoted text as java.io.StreamTokenizer reads it; the escapes that we use."""
    assert text[0] == '"' and text[-1] == '"' and not re.search("[\n\r]", text)
    meant = {"n": "\n", "r": "\r"}
    # An unescaped quote inside would have ended it: the pattern then leaves something over.
    matched = re.fullmatch(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    assert matched is not None
    return re.sub(
        r"\\(.)",
        lambda matched_escape: meant.get(matched_escape.group(1), matched_escape.group(1)),
        matched.group(1),
        flags=re.DOTALL,
    )


@pytest.mark.parametrize(
    ("properties", "java"),
    [
        ({}, {}),
        ({"security.protocol": "ssl"}, {"security.protocol": "SSL"}),
        (
            {"ssl.ca.location": "/ca.pem"},
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
        ),
        (
            {"ssl.ca.pem": "CERTIFICATE"},
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "CERTIFICATE"},
        ),
        ({"ssl.endpoint.identification.algorithm": "none"}, {"ssl.endpoint.identification.algorithm": ""}),
        ({"ssl.endpoint.identification.algorithm": "https"}, {"ssl.endpoint.identification.algorithm": "https"}),
        *(({"enable.ssl.certificate.verification": true}, {}) for true in ("true", "True", "t", "1")),
        (
            {"ssl.certificate.location": "/c.pem", "ssl.key.location": "/k.pem", "ssl.key.password": "hunter2"},
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "CERTIFICATE",
                "ssl.keystore.key": "KEY",
                "ssl.key.password": "hunter2",
            },
        ),
        (
            {"ssl.certificate.pem": "CERTIFICATE", "ssl.key.location": "/k.pem"},
            {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "CERTIFICATE",
                "ssl.keystore.key": "KEY",
            },
        ),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "hunter2"},
            {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "/me.p12",
                "ssl.keystore.password": "hunter2",
            },
        ),
        ({"client.rack": "r1", "fetch.wait.max.ms": "20"}, {"client.rack": "r1", "fetch.max.wait.ms": "20"}),
        # They tune librdkafka, or are a producer's.
        ({"compression.type": "zstd", "message.max.bytes": "9", "socket.nagle.disable": "true", "debug": "all"}, {}),
        ({"security.protocol": "PLAINTEXT", "sasl.username": "u"}, {"security.protocol": "PLAINTEXT"}),
    ],
)
def test_each_property_becomes_javas(properties: dict[str, str], java: dict[str, str]) -> None:
    assert java == plain(java_properties(properties, FILES.__getitem__))


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_become_a_jaas_entry(mechanism: str, module: str, name: str) -> None:
    properties = {
        "security.protocol": "sasl_plaintext",
        name: mechanism,
        "sasl.username": "ada",
        "sasl.password": 'a"b\\c',
    }

    assert {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="ada" password="a\\"b\\\\c";',
    } == plain(java_properties(properties))


def test_a_value_made_of_a_secret_is_a_secret() -> None:
    properties = java_properties(
        PLAIN | {"ssl.certificate.pem": "C", "ssl.key.pem": "hunter2", "ssl.key.password": "hunter2"}
    )

    assert {"sasl.jaas.config", "ssl.key.password", "ssl.keystore.key"} <= {
        name for name, text in properties.items() if isinstance(text, Secret)
    }
    assert "hunter2" not in str(properties)


@given(st.text(st.characters(codec="utf-8")))
def test_a_password_of_any_kind_is_read_back_unchanged(password: str) -> None:
    entry = jaas("M", password=password)

    assert entry.startswith("M required password=") and entry.endswith(";")
    assert password == of_stream_tokenizer(entry.removeprefix("M required password=")[:-1])


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sasl.jaas.config": "hunter2"}, "sasl.jaas.config: .* found one that has no counterpart.*sasl.username"),
        ({"ssl.cipher.suites": "X"}, "ssl.cipher.suites: "),
        ({"sasl.kerberos.keytab": "/k"}, "sasl.kerberos.keytab: "),
        ({"ssl.truststore.location": "/t"}, "ssl.truststore.location: "),
        ({"enable.sasl.oauthbearer.unsecure.jwt": "true"}, "enable.sasl.oauthbearer.unsecure.jwt: "),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification: wanted true"),
        ({"enable.ssl.certificate.verification": "0"}, "enable.ssl.certificate.verification: wanted true"),
        ({"ssl.ca.location": "probe"}, "ssl.ca.location: wanted the absolute path of a PEM file, found 'probe'"),
        ({"ssl.ca.location": "/ca.pem", "ssl.ca.pem": "x"}, "ssl.ca.pem: wanted it or ssl.ca.location, found both"),
        ({"ssl.key.location": "/k.pem"}, "ssl.key.*: wanted ssl.certificate.location or ssl.certificate.pem"),
        ({"ssl.certificate.pem": "x"}, "ssl.certificate.*: wanted ssl.key.location or ssl.key.pem"),
        ({"ssl.key.location": "/no", "ssl.key.pem": "hunter2"}, "ssl.key.pem: wanted it or ssl.key.location"),
        (PLAIN | {"sasl.mechanisms": "OAUTHBEARER"}, "sasl.mechanisms: wanted one of PLAIN, .* found OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanisms: .*found nothing, which means GSSAPI"),
        ({k: v for k, v in PLAIN.items() if k != "sasl.username"}, "sasl.mechanisms: wanted sasl.username and sasl"),
    ],
)
def test_a_property_without_a_translation_is_refused_without_its_value(
    properties: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        java_properties(properties, FILES.__getitem__)

    assert "hunter2" not in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ConfigError, match="ssl.certificate.location: wanted a PEM file at /nowhere/c.pem, found No su"
    ):
        java_properties({"ssl.certificate.location": "/nowhere/c.pem", "ssl.key.pem": "KEY"})


def test_a_directory_of_certificates_is_refused_because_java_reads_none(tmp_path: Path) -> None:
    """For librdkafka it may be a directory."""
    with pytest.raises(ConfigError, match=f"ssl.ca.location: wanted a PEM file, .* found the directory {tmp_path}"):
        java_properties({"ssl.ca.location": str(tmp_path)})
