"""The bill of materials of samzapy, as CycloneDX 1.6 in JSON.

    scripts/sbom [FILE]

It has the Python packages that samzapy is installed with here, each with its license and the packages that require it.
It also has the jars of the lock lists with their SHA-256. The jars of the Kafka connector are required. Those of the
broker, which `samzapy dev` and the tests start, are optional. Jars that a Python package contains, such as Spark's own
in pyspark, are part of that package. The same environment and SOURCE_DATE_EPOCH give the same bytes. Without FILE it is
printed.

Ends with 2 if a license is unknown, or not accepted in requirements/licenses.cfg.
"""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import is_expression, is_supported_id
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel_locks import LISTS

from samzapy.adapters.maven.locks import KAFKA_BROKER, KAFKA_TOOLS, LockedJar, connector_lock, read_lock
from samzapy.errors import ConfigError, SamzapyError
from samzapy.version import __version__

ROOT_PACKAGE = "samzapy"
_PERMITTED = "accepted in requirements/licenses.cfg"
# Older metadata has no SPDX identifier. "BSD License" says too little, so it is not here.
_CLASSIFIERS = {
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: ISC License (ISCL)": "ISC",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "License :: OSI Approved :: Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Licenses:
    """The contents of requirements/licenses.cfg."""

    accepted: frozenset[str]
    accepted_for: Mapping[str, str]
    packages: Mapping[str, str]
    jars: Mapping[str, str]

    @classmethod
    def read(cls, path: Path = LISTS / "licenses.cfg") -> Licenses:
        parser = ConfigParser(delimiters=("=",))
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
        return cls(
            accepted=frozenset(parser["accepted"]["licenses"].split()),
            accepted_for=dict(parser["accepted for one package"]),
            packages=dict(parser["packages"]),
            jars=dict(parser["jars"]),
        )

    def of_package(self, package: Distribution) -> str:
        """The license as an SPDX expression.

        Raises:
            ConfigError: the metadata names none, or it is not accepted.
        """
        name = canonicalize_name(package.name)
        text = self.packages.get(name) or stated_license(package)
        if text is None:
            raise ConfigError(
                f"{name} {package.version}: wanted a license with an SPDX identifier in its metadata, found none;"
                " read its license file, and list it under [packages] in requirements/licenses.cfg"
            )
        if self.accepted_for.get(name) != text:
            self._refuse_others(text, name)
        return text

    def of_jar(self, jar: LockedJar) -> str:
        """The license as an SPDX expression; errors as in `of_package`."""
        text = self.jars.get(jar.group)
        if text is None:
            raise ConfigError(
                f"{jar.coordinates}: wanted its license in requirements/licenses.cfg, found none; read the license"
                f" file in the jar, and list {jar.group} under [jars]"
            )
        self._refuse_others(text, jar.coordinates)
        return text

    def _refuse_others(self, text: str, name: str) -> None:
        # Each license of a choice counts too, so that no rule about OR and AND is needed.
        licenses = set(re.findall(r"[\w.+-]+", text)) - {"AND", "OR", "WITH"}
        if others := sorted(licenses - self.accepted):
            raise ConfigError(
                f"{name}: wanted a license that is {_PERMITTED}, found {', '.join(others)}; leave {name} out, or"
                " list it there with the reason"
            )


def stated_license(package: Distribution) -> str | None:
    """The license that a package's metadata states, as an SPDX expression."""
    for field in ("License-Expression", "License"):
        text = (package.metadata.get_all(field) or ("",))[0]
        if is_supported_id(text) or (" " in text and is_expression(text)):
            return text
    classifiers = package.metadata.get_all("Classifier") or ()
    stated = {_CLASSIFIERS[text] for text in classifiers if text in _CLASSIFIERS}
    return stated.pop() if len(stated) == 1 else None


def installed_packages(name: str) -> Mapping[str, tuple[Distribution, Sequence[str]]]:
    """A package and all that it requires here, each with its requirements by name."""
    packages: dict[str, tuple[Distribution, Sequence[str]]] = {}
    waiting: list[str] = [canonicalize_name(name)]
    while waiting:
        current = waiting.pop()
        if current not in packages:
            package = distribution(current)
            required = sorted(set(_required(package)))
            packages[current] = (package, required)
            waiting += required
    return packages


def _required(package: Distribution) -> Iterator[str]:
    # samzapy requires no extra of a package; extras of others are theirs alone.
    for text in package.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def bill_of_materials(moment: datetime) -> str:
    """The bill as JSON; `moment` is its time."""
    licenses, factory = Licenses.read(), LicenseFactory()
    packages = installed_packages(ROOT_PACKAGE)
    components = {
        name: _package_component(package, licenses.of_package(package), factory)
        for name, (package, _) in packages.items()
    }
    root = components[ROOT_PACKAGE]
    jars = [*_jar_components(licenses, factory)]
    bom = Bom(components=[*(part for part in components.values() if part is not root), *jars])
    bom.metadata.component = root
    bom.metadata.timestamp = moment
    for name, (_, required) in packages.items():
        bom.register_dependency(components[name], [components[other] for other in required])
    bom.register_dependency(root, [*(components[name] for name in packages[ROOT_PACKAGE][1]), *jars])
    # A serial number of its own for each content, and not for each run.
    content = JsonV1Dot6(bom).output_as_string(indent=2)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, content.replace(str(bom.serial_number), ""))
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _package_component(package: Distribution, license_text: str, factory: LicenseFactory) -> Component:
    name = canonicalize_name(package.name)
    # An editable installation keeps the version with which it was made.
    version = __version__ if name == ROOT_PACKAGE else package.version
    address = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=address,
        bom_ref=str(address),
        licenses=[factory.make_from_string(license_text)],
        scope=None if name == ROOT_PACKAGE else ComponentScope.REQUIRED,
    )


def _jar_components(licenses: Licenses, factory: LicenseFactory) -> Iterator[Component]:
    required = read_lock(connector_lock())
    optional = [*read_lock(KAFKA_BROKER), *read_lock(KAFKA_TOOLS)]
    for jars, scope in ((required, ComponentScope.REQUIRED), (optional, ComponentScope.OPTIONAL)):
        for jar in jars:
            yield _jar_component(jar, scope, licenses.of_jar(jar), factory)


def _jar_component(jar: LockedJar, scope: ComponentScope, license_text: str, factory: LicenseFactory) -> Component:
    qualifiers = {"classifier": jar.classifier} if jar.classifier else {}
    address = PackageURL("maven", jar.group, jar.artifact, jar.version, {"type": "jar", **qualifiers})
    return Component(
        group=jar.group,
        name=jar.artifact,
        version=jar.version,
        type=ComponentType.LIBRARY,
        purl=address,
        bom_ref=str(address),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=jar.sha256)],
        licenses=[factory.make_from_string(license_text)],
        scope=scope,
    )


def main(arguments: Iterable[str]) -> int:
    files = [*arguments]
    if len(files) > 1 or any(text.startswith("-") for text in files):
        print(__doc__, file=sys.stderr)
        return 2
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    try:
        text = bill_of_materials(moment)
    except SamzapyError as error:
        print(f"scripts/sbom: {error}", file=sys.stderr)
        return error.exit_code
    if files:
        Path(files[0]).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
