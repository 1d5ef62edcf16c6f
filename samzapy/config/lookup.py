"""Look up a key in the registry, and check a value against its entry."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from samzapy.config.keys import KEYS, REQUIRED, ConfigKey
from samzapy.config.samza_keys import SAMZA_KEYS, instead_of_class
from samzapy.errors import ConfigError, UnknownConfigKeyError

PATTERN_SIGN: Final = "~"
"""With it the name of a stream begins that is a pattern."""
KEYS_OF_PROCESS: Final = frozenset(key.name for key in KEYS if key.of_process)
NOT_A_PATTERN: Final = (re.error, OverflowError, RecursionError)
"""The errors of a text that is no regular expression."""
_NEAR: Final = 0.8
_NEAR_CHARS_MAX: Final = 200
_DIGITS_MAX: Final = 19
"""The share of characters that two names have in common, in order, from which on one may be meant by the other."""
_PLACEHOLDER = re.compile(r"<\w+>")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
ID: Final = re.compile(r"[A-Za-z0-9_]+")
_FACTORY = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@lru_cache(maxsize=4096)
def spec_of(key: str) -> ConfigKey | None:
    """The entry of `key`: its own or its family's; None for an unknown key."""
    # Each configuration that is read from the stream asks for all its keys again.
    return next((spec for spec, pattern in _PATTERNS if pattern.fullmatch(key)), None)


def _pattern(name: str) -> re.Pattern[str]:
    """`stores.<name>.x` as a pattern.

    Stream names and client properties may hold dots; other names may not.
    """
    parts = re.split(r"(<\w+>)", name)
    return re.compile("".join(_part_pattern(part) for part in parts))


def _part_pattern(part: str) -> str:
    if not _PLACEHOLDER.fullmatch(part):
        return re.escape(part)
    return r".+" if part in ("<stream>", "<property>", "<rest>") else r"[^.]+"


_PATTERNS: Final = tuple((spec, _pattern(spec.name)) for spec in KEYS)
_SAMZA_PATTERNS: Final = tuple((known, _pattern(known.name)) for known in SAMZA_KEYS)


def stream_setting_keys(system_stream: str, setting: str, keys: Iterable[str]) -> tuple[str, ...]:
    """The keys that may hold a setting of a stream, the strongest first.

    The order is: the stream's own key, keys with a pattern in place of its name (those among `keys`, in the order of
    their texts), the key of its system.
    """
    system, _, stream = system_stream.partition(".")
    before, after = f"systems.{system}.streams.{PATTERN_SIGN}", f".{setting}"
    patterns = (key for key in sorted(keys) if key.startswith(before) and key.endswith(after))
    return (
        f"systems.{system}.streams.{stream}.{setting}",
        *(key for key in patterns if is_matched(stream, key.removeprefix(before).removesuffix(after))),
        f"systems.{system}.{setting}",
    )


def is_matched(stream: str, pattern: str, *, if_broken: bool = False) -> bool:
    """Whether the whole name of a stream matches a pattern.

    Args:
        if_broken: the answer for a text that is no regular expression, which `config.checks` refuses by name.
    """
    try:
        return re.fullmatch(pattern, stream) is not None
    except NOT_A_PATTERN:
        return if_broken


def check_known(key: str) -> None:
    """Raise UnknownConfigKeyError for an unknown key.

    The message names the replacement, or the nearest known key if it is near.
    """
    if spec_of(key) is not None:
        return
    if key.startswith("spark."):
        raise UnknownConfigKeyError(f"{key}: Spark's settings belong to spark-submit; pass --conf {key}=...")
    samza_key = next((known for known, pattern in _SAMZA_PATTERNS if pattern.fullmatch(key)), None)
    if samza_key is not None:
        raise UnknownConfigKeyError(f"{key} is a key of Samza that samzapy does not have. {samza_key.answer}")
    families = {_filled(spec.name, key): spec.name for spec in KEYS}
    close = _close(key, families)
    hint = f"; did you mean {families[close]}?" if close else "; docs/reference/configuration.md lists all keys"
    raise UnknownConfigKeyError(f"unknown config key {key}{hint}")


def _filled(family: str, key: str) -> str:
    """`family` with the parts of `key` in place of its placeholders.

    So a long name of a store hides no difference.
    """
    parts = key.split(".")
    return ".".join(
        parts[index] if _PLACEHOLDER.fullmatch(part) and index < len(parts) else part
        for index, part in enumerate(family.split("."))
    )


def value_of(key: ConfigKey, properties: Mapping[str, str]) -> str | None:
    """The text under `key`, checked, or its default; an empty text is the default too.

    Raises:
        ConfigError: a required key is not there, or the value is not of the key's kind.
    """
    value = properties.get(key.name)
    if not value:
        if key.default is REQUIRED:
            raise ConfigError(f"wanted {key.name}, found nothing; {key.meaning}")
        return None if key.default is None else str(key.default)
    check_value(key, key.name, value)
    return value


def check_value(spec: ConfigKey, key: str, value: str) -> None:
    """Raise ConfigError unless `value` is of the kind of `spec`.

    `key` is for the message.
    """
    if spec.choices and value not in spec.choices:
        raise ConfigError(f"{key}: wanted one of {', '.join(spec.choices)}, found {value!r}")
    if spec.kind in ("ms", "count", "bytes") and not is_number(value):
        unit = {"ms": "milliseconds", "bytes": "bytes", "count": "a number"}[spec.kind]
        raise ConfigError(f"{key}: wanted {unit} (digits only), found {value!r:.100}")
    if spec.kind in ("ms", "count", "bytes") and not spec.least <= int(value) <= spec.most:
        raise ConfigError(f"{key}: wanted a number from {spec.least} to {spec.most}, found {value}")
    if spec.kind == "name" and not _NAME.fullmatch(value):
        raise ConfigError(f"{key}: wanted letters, digits, dots, dashes or underscores, found {value!r}")
    if spec.kind == "factory" and not _FACTORY.fullmatch(value):
        raise ConfigError(
            f"{key}: wanted module:Class (groupers:ByCustomer), found {value!r}{instead_of_class(value)}"
        )
    if spec.kind == "id" and not ID.fullmatch(value):
        raise ConfigError(f"{key}: wanted letters, digits and underscores (no dashes), found {value!r}")


def is_number(text: str) -> bool:
    """True if `text` is a number of as many digits as 64 bits may have."""
    # Python refuses to read thousands of digits.
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def is_id(text: str) -> bool:
    """True if `text` is a valid id, for instance for `processor.id`."""
    return ID.fullmatch(text) is not None


def nearest(given: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` for the end of a message, or nothing where none is near."""
    close = _close(given, known)
    return f"; did you mean {close}?" if close else ""


def _close(given: str, known: Iterable[str]) -> str:
    if len(given) > _NEAR_CHARS_MAX:
        return ""  # A comparison with each key would take a second.
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=_NEAR)
    return close[0] if close else ""
