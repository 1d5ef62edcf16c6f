"""Translate librdkafka's connection properties for Java's Kafka client.

Spark's source uses that client. `systems.<system>.client.<property>` are librdkafka's names. The two clients share few
of the security properties: Java wants one JAAS text for user and password, and PEM files are stores of a type of their
own (KIP-651). The source gets only translated properties. A security property without a translation is refused with a
named error, since otherwise one half of the job would connect and the other would not. All other properties only tune
librdkafka.

Values may be secrets: no message has a value, and a value made of a secret is a secret too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from samzapy.config import Secret, Text, revealed, sounds_secret
from samzapy.errors import ConfigError

SAME = (
    "client.dns.lookup",
    "client.rack",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
)
"""The same name, and values that mean the same."""

RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SASL = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")
_OTHERS = (
    "enable.ssl.certificate.verification",
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.key.pem",
)
TRANSLATED = frozenset((*SAME, *RENAMED, *_SASL, *_OTHERS))
_TRUE = ("true", "t", "1")
"""As librdkafka spells it."""
_SECURITY = ("enable.sasl.", "enable.ssl.", "sasl.", "security.", "ssl.", "https.")


def java_properties(properties: Mapping[str, Text], read: Callable[[str], str] | None = None) -> dict[str, Text]:
    """librdkafka's `properties` as properties of Java's consumer.

    Args:
        read: gives the text of a file.

    Raises:
        ConfigError: a property has no translation, or a file cannot be read; the text has its name, never its value.
    """
    translated = _translated({name: revealed(text) for name, text in properties.items()}, read or _text_of)
    return {name: Secret(text) if sounds_secret(name) else text for name, text in translated.items()}


def _translated(properties: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    for name in sorted(properties):
        if name.startswith(_SECURITY) and name not in TRANSLATED:
            raise _refused(
                name,
                "wanted a property that librdkafka and Java's client both know, because Spark reads the input with "
                f"the latter; found one that has no counterpart. Those that have: {', '.join(sorted(TRANSLATED))}",
            )
    translated = {name: properties[name] for name in SAME if name in properties}
    translated |= {java: properties[name] for name, java in RENAMED.items() if name in properties}
    if "security.protocol" in properties:
        translated["security.protocol"] = properties["security.protocol"].upper()
    return translated | _trust(properties) | _identity(properties, read) | _sasl(properties)


def jaas(module: str, **options: str) -> str:
    """A JAAS entry with one login module.

    Options are quoted as Java's StreamTokenizer reads them.
    """
    return f"{module} required {' '.join(f'{name}={_quoted(value)}' for name, value in options.items())};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _trust(properties: Mapping[str, str]) -> dict[str, str]:
    """The certificates that the client trusts."""
    trust: dict[str, str] = {}
    if properties.get("enable.ssl.certificate.verification", "true").lower() not in _TRUE:
        raise _refused(
            "enable.ssl.certificate.verification",
            "wanted true, because Java's client always verifies the certificate; give the broker's certificate as "
            "ssl.ca.location instead",
        )
    if "ssl.ca.location" in properties and "ssl.ca.pem" in properties:
        raise _refused("ssl.ca.pem", "wanted it or ssl.ca.location, found both; remove one of them")
    if "ssl.ca.location" in properties:
        path = properties["ssl.ca.location"]
        if not Path(path).is_absolute():
            raise _refused("ssl.ca.location", f"wanted the absolute path of a PEM file, found {path!r}")
        if Path(path).is_dir():
            raise _refused(
                "ssl.ca.location",
                f"wanted a PEM file, because Java's client reads no directory, found the directory {path}; put its "
                "certificates into one file",
            )
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
    if "ssl.ca.pem" in properties:
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": properties["ssl.ca.pem"]}
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        # "none" in librdkafka is the empty text in Java.
        trust["ssl.endpoint.identification.algorithm"] = "" if algorithm.lower() == "none" else algorithm
    return trust


def _identity(properties: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """The client's own certificate and key.

    Java takes them as two texts, not as two files.
    """
    if "ssl.keystore.location" in properties:
        return {"ssl.keystore.type": "PKCS12"}
    certificate = _pem(properties, "ssl.certificate", read)
    key = _pem(properties, "ssl.key", read)
    if certificate is None and key is None:
        return {}
    if certificate is None or key is None:
        missing, there = ("ssl.certificate", "ssl.key") if certificate is None else ("ssl.key", "ssl.certificate")
        raise _refused(f"{there}.*", f"wanted {missing}.location or {missing}.pem beside it, found neither")
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}


def _pem(properties: Mapping[str, str], name: str, read: Callable[[str], str]) -> str | None:
    path, text = properties.get(f"{name}.location"), properties.get(f"{name}.pem")
    if path is None:
        return text
    if text is not None:
        raise _refused(f"{name}.pem", f"wanted it or {name}.location, found both; remove one of them")
    try:
        return read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a file that is no text"
        raise _refused(f"{name}.location", f"wanted a PEM file at {path}, found {reason}") from error


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    """User and password."""
    if not properties.get("security.protocol", "").upper().startswith("SASL_"):
        return {}
    name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
    mechanism = properties.get(name, "GSSAPI")
    if mechanism not in _MODULES:
        given = mechanism if name in properties else f"nothing, which means {mechanism}"
        raise _refused(name, f"wanted one of {', '.join(_MODULES)}, found {given}")
    if "sasl.username" not in properties or "sasl.password" not in properties:
        raise _refused(name, f"wanted sasl.username and sasl.password beside {mechanism}, found not both")
    user, password = properties["sasl.username"], properties["sasl.password"]
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(_MODULES[mechanism], username=user, password=password),
    }


def _text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _refused(name: str, reason: str) -> ConfigError:
    return ConfigError(f"systems.<system>.client.{name}: {reason}")
