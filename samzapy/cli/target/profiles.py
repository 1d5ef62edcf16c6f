"""Named targets of commands, in one file of the user.

The file holds addresses and names. A secret is refused there; `${env:NAME}` stands for it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from samzapy.errors import ConfigError, RejectedError

_FILE_BYTES_MAX: Final = 1024 * 1024
# A name that begins with - would be an option.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_FIELDS: Final = ("config", "job", "bootstrapServers", "set")
_PLACES_OF_SECRETS: Final = ("file:", "env:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A target under a name; None and an empty `overrides` stand for nothing."""

    config_file: Path | None = None
    job: str | None = None
    bootstrap_servers: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> Mapping[str, object]:
        """The profile as it stands in the file."""
        values = (
            None if self.config_file is None else str(self.config_file),
            self.job,
            self.bootstrap_servers,
            dict(self.overrides),
        )
        return dict(zip(_FIELDS, values, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The profiles of a user, and the name of the one that commands use."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str, source: str) -> Profile:
        """The profile of this name. Raises RejectedError if there is none."""
        profile = self.profiles.get(name)
        if profile is None:
            names = ", ".join(sorted(self.profiles)) or "none"
            raise RejectedError(
                f"{source}: wanted one of the profiles ({names}), found {name!r}; `samzapy profile set {name}` makes it"
            )
        return profile

    def with_profile(self, name: str, profile: Profile) -> Profiles:
        """These profiles and `profile`, which is used if it is the only one."""
        from samzapy.config import is_reference, sounds_secret

        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"wanted a name of letters, digits, - and _ that does not begin with -, found {name!r}; choose another "
                "name"
            )
        for key, value in profile.overrides.items():
            if sounds_secret(key) and not (is_reference(value) or value.startswith(_PLACES_OF_SECRETS)):
                raise ConfigError(
                    f"profile {name}: wanted no secret in a profile, found one under {key}; write ${{env:NAME}} in its "
                    "place, or name a properties file that has it (--config)"
                )
        return replace(self, profiles={**self.profiles, name: profile}, current=self.current or name)

    def without(self, name: str) -> Profiles:
        """These profiles without one. Raises RejectedError if there is none."""
        self.named(name, "profile delete")
        rest = {other: profile for other, profile in self.profiles.items() if other != name}
        return Profiles(profiles=rest, current=None if self.current == name else self.current)


def profiles_path(environment: Mapping[str, str]) -> Path:
    """The file of the profiles, whether it exists or not."""
    base = environment.get("XDG_CONFIG_HOME", "")
    # A relative path is to be ignored, as the XDG base directory specification says.
    directory = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return directory / "samzapy" / "profiles.json"


def read_profiles(path: Path) -> Profiles:
    """The profiles in the file; none where there is no file.

    Raises:
        ConfigError: the file cannot be read, is malformed, has a secret, or other users may read or change it.
    """
    try:
        with path.open("rb") as file:
            from samzapy.config import refuse_open_file

            refuse_open_file("profiles", path, os.fstat(file.fileno()).st_mode)
            content = file.read(_FILE_BYTES_MAX)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ConfigError(f"wanted the profiles in {path}, found {error.strerror}; correct its rights") from error
    from samzapy.model.strict_json import parse_json_text

    try:
        return _profiles_of(parse_json_text(content.decode()))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path}: wanted profiles as `samzapy profile set` writes them, found: {error}; correct the file, or "
            "remove it"
        ) from error


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Write the file whole or not at all, for its user only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = {
        "current": profiles.current,
        "profiles": {name: profile.as_json() for name, profile in sorted(profiles.profiles.items())},
    }
    written = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)


def _profiles_of(content: Any) -> Profiles:
    if not isinstance(content, dict) or not isinstance(content.get("profiles"), dict):
        raise TypeError("no object with the field profiles")
    profiles = Profiles()
    for name, fields in content["profiles"].items():
        profiles = profiles.with_profile(name, _profile_of(name, fields))
    current = content.get("current")
    if current is not None and current not in profiles.profiles:
        raise ValueError(f"the current profile {current!r} is not there")
    return replace(profiles, current=current)


def _profile_of(name: str, fields: Any) -> Profile:
    if not isinstance(fields, dict) or fields.keys() - set(_FIELDS):
        raise TypeError(f"profile {name}: fields other than {', '.join(_FIELDS)}")
    config, job, servers = (fields.get(key) for key in _FIELDS[:3])
    overrides = fields.get("set") or {}
    texts = [*(value for value in (config, job, servers) if value is not None), *_items(overrides)]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"profile {name}: a value that is no text")
    return Profile(
        config_file=None if config is None else Path(config),
        job=job,
        bootstrap_servers=servers,
        overrides=overrides,
    )


def _items(overrides: Any) -> list[Any]:
    if not isinstance(overrides, dict):
        raise TypeError("a field set that is no object")
    return [*overrides.keys(), *overrides.values()]
