"""The lists in `requirements/`: Python packages, their versions and hashes.

`scripts/lock_wheels` writes them, and `pip install --require-hashes` takes them. One list serves each supported Python;
a package that needs different versions has a line for each, with a marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from samzapy.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "requirements"
BUILD, DEV, RUNTIME = "build", "dev", "runtime"
_HASH = re.compile(r"\s--hash=(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedPackage:
    """One line of a list.

    `hashes` are those of its files; `marker` says for which Pythons it is.
    """

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def is_for(self, python: str) -> bool:
        marker = Requirement(f"{self.name} ; {self.marker}").marker if self.marker else None
        return marker is None or marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"})


def read_list(name: str) -> tuple[LockedPackage, ...]:
    """The packages of one of the checked-in lists."""
    path = LISTS / f"{name}.txt"
    return parse_list(path.read_text(encoding="utf-8"), origin=path.name)


def parse_list(text: str, origin: str) -> tuple[LockedPackage, ...]:
    """The packages of the list `text`; `origin` is its name in errors.

    Raises:
        ConfigError: a line names no exact version, or has no SHA-256.
    """
    return tuple(_locked(line, origin) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    without_comments = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", without_comments).splitlines():
        if line.strip():
            yield line.strip()


def _locked(line: str, origin: str) -> LockedPackage:
    hashes = frozenset(_HASH.findall(line))
    try:
        requirement = Requirement(_HASH.sub("", line))
    except InvalidRequirement as error:
        raise ConfigError(_no_lock(line, origin)) from error
    pins = [specifier.version for specifier in requirement.specifier if specifier.operator == "=="]
    if len(pins) != 1 or not hashes or not all(re.fullmatch(r"sha256:[0-9a-f]{64}", text) for text in hashes):
        raise ConfigError(_no_lock(line, origin))
    return LockedPackage(
        name=canonicalize_name(requirement.name),
        version=pins[0],
        marker=str(requirement.marker or ""),
        hashes=hashes,
    )


def _no_lock(line: str, origin: str) -> str:
    return (
        f"{origin}: wanted `name==version --hash=sha256:...` with 64 hex digits, found {line[:80]!r}."
        " Write the list again with scripts/lock_wheels."
    )


def pins(name: str, python: str) -> Mapping[str, LockedPackage]:
    """The packages of a list for one minor version of Python, such as `3.11`, by name."""
    return {package.name: package for package in read_list(name) if package.is_for(python)}


def differences(locked: Mapping[str, LockedPackage]) -> list[str]:
    """The packages of this environment that are not the locked ones."""
    return [
        f"{name} {installed or '(missing)'} in place of {package.version}"
        for name, package in sorted(locked.items())
        if (installed := installed_version(name)) != package.version
    ]


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
