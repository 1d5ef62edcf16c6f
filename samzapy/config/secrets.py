"""The keys of secrets, and a type that shows a secret's text only on request.

Which keys are secrets is said here and nowhere else. All keys of ours are known, and none of them is one; those of
the Kafka clients are theirs (`ConfigKey.may_be_secret`), so there the name decides, and in doubt it is one: a value
that is hidden needlessly costs a look into a file, one that is shown costs a new password.

A secret becomes a `Secret` where it is read (`config.sources`) and a text again where a client is made. In between it
can be passed on, compared and sent to a worker, but not printed, joined to a text, or written as JSON.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from typing import Final

from samzapy.config.lookup import spec_of
from samzapy.errors import ConfigError

SECRET: Final = "***"
"""The text in place of a secret in a record, a JobModel, a message or an answer."""

_SOUNDS_SECRET = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|jaas|oauthbearer|user\.info|ssl\.key"
    r"|(?:private|api|access)[._-]?key",
    re.IGNORECASE,
)
# These name a place or a format of a key, and not the key.
_SAYS_WHERE = re.compile(r"\.(?:file|location|type)\Z", re.IGNORECASE)
_KEY_AND_VALUE = re.compile(r"(?:--\w+=)?(?P<key>[^=]+)=")
# In Java options, URLs and lists of settings. A name with / before or in it is a part of a path (/data/token=a/b).
_SETTING_IN_VALUE = re.compile(
    r"(?<![^\s,;\"'?&=])(?P<name>[^\s,;\"'?&=/]+)=(?!\Z|[\"']?\$\{env:[^}]*\}(?:[\s,;\"'&]|\Z))"
)
_CLIENT_PROPERTY = re.compile(r"systems\.[^.]+\.client\.(?P<property>.+)", re.DOTALL)
REFERENCE: Final = re.compile(r"\$\{env:(?P<name>[^}]*)\}")
"""The place of an environment variable's text in a value."""


class Secret:
    """A text that is never shown.

    `str`, `repr` and any format of it are `***`, and JSON refuses it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for a client that connects."""
        return self._text

    def __repr__(self) -> str:
        return SECRET

    def __format__(self, spec: str) -> str:
        return format(SECRET, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        # Workers connect too, and their arguments are pickled.
        return Secret, (self._text,)


Text = str | Secret
"""A value as it was given."""


def is_secret(key: str) -> bool:
    """True if the value of `key` is a secret and is never shown."""
    spec = spec_of(key)
    if spec is not None and not spec.may_be_secret:
        # A store or a stream may be called `tokens`.
        return False
    matched = _CLIENT_PROPERTY.fullmatch(key)
    return sounds_secret(key if matched is None else matched["property"])


def sounds_secret(name: str) -> bool:
    """True if the name of a foreign property sounds like a secret."""
    return _SOUNDS_SECRET.search(name) is not None and _SAYS_WHERE.search(name) is None


def hidden(key: str, text: Text) -> Text:
    """`text` as the value of `key`: a `Secret` where that is one."""
    return Secret(text) if isinstance(text, str) and is_secret(key) else text


def revealed(text: Text) -> str:
    """The text itself; see `Secret.reveal`."""
    return text.reveal() if isinstance(text, Secret) else text


def without_secrets(message: str, secrets: Iterable[Secret]) -> str:
    """`message`, which may quote `secrets`, with each of them replaced."""
    # The longest first: one may be a part of another.
    for text in sorted((secret.reveal() for secret in secrets), key=len, reverse=True):
        message = message.replace(text, SECRET) if text else message
    return message


def is_reference(text: Text) -> bool:
    """True if the whole text is the place of an environment variable's."""
    return REFERENCE.fullmatch(revealed(text)) is not None


def argument_without_secret(argument: str) -> str:
    """An argument of a command as it may be shown.

    Of `key=value` only the key is shown if it sounds like a secret, unless the value is only `${env:NAME}`. So it is if
    a setting in the value does: `spark.driver.extraJavaOptions=-Dpassword=...`.
    """
    matched = _KEY_AND_VALUE.match(argument)
    if matched is None:
        # A mistyped setting, or a path.
        return SECRET if _SOUNDS_SECRET.search(argument) and re.search(r"[:\s]", argument) else argument
    key, value = matched["key"].strip(), argument[matched.end() :]
    is_shown = not value or is_reference(value) or not (is_secret(key) or _has_secret(key, value))
    return argument if is_shown else f"{matched[0]}{SECRET}"


def _has_secret(key: str, value: str) -> bool:
    """True if a setting in the value of a foreign key sounds like a secret."""
    spec = spec_of(key)
    is_foreign = spec is None or spec.may_be_secret
    return is_foreign and any(is_secret(setting["name"]) for setting in _SETTING_IN_VALUE.finditer(value))


def refuse_open_file(key: str, path: object, mode: int) -> None:
    """Refuse the file of a secret that other users may read, or the group may write.

    Args:
        key: that names the file.
        mode: `st_mode` of the file.
    """
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(
            f"{key}: wanted a file that other users cannot read, found {path} with mode {stat.S_IMODE(mode):04o}; run "
            f"chmod 600 {path}"
        )


def refuse_secret_arguments(arguments: Iterable[str]) -> None:
    """Refuse a secret on a command line.

    Each user of the host can read it there, and so does a cluster manager, which shows it on its pages.

    Raises:
        ConfigError: an argument may be a secret; the text does not have it.
    """
    for argument in arguments:
        shown = argument_without_secret(argument)
        if shown != argument:
            raise ConfigError(
                f"{shown}: wanted nothing secret on a command line, which every user of the host can read; write it "
                "into the properties file (an option of Spark into the file that --properties-file names), or write "
                "${env:NAME} in its place and set that variable on each host"
            )
