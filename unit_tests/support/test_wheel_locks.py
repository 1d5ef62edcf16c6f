"""The lists of `requirements/`, which `pip install --require-hashes` takes."""

from __future__ import annotations

from configparser import ConfigParser

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel_locks import BUILD, DEV, ROOT, RUNTIME, differences, parse_list, pins, read_list

from samzapy.errors import ConfigError

PYTHONS = ("3.11", "3.12", "3.13")
SHA256 = "0123456789abcdef" * 4


def requirements_of(*sections: str) -> list[Requirement]:
    """Those of setup.cfg: `install_requires`, or an extra."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    texts = [setup["options" if name == "install_requires" else "options.extras_require"][name] for name in sections]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("lock", "sections"), [(RUNTIME, ("install_requires",)), (DEV, ("install_requires", "dev"))])
def test_each_requirement_of_setup_cfg_is_locked_to_a_version_that_it_allows(
    python: str, lock: str, sections: tuple[str, ...]
) -> None:
    locked = pins(lock, python)

    for requirement in requirements_of(*sections):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not locked; run scripts/lock_wheels"
        version = locked[name].version
        assert requirement.specifier.contains(version), f"{requirement} excludes {version}; run scripts/lock_wheels"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lists_agree_about_each_version(python: str) -> None:
    versions = {name: package.version for name, package in pins(DEV, python).items()}
    runtime = {name: package.version for name, package in pins(RUNTIME, python).items()}

    assert runtime == {name: versions[name] for name in runtime}
    assert versions["setuptools"] == pins(BUILD, python)["setuptools"].version


@pytest.mark.parametrize("name", [BUILD, DEV, RUNTIME])
def test_no_python_has_two_versions_of_a_package(name: str) -> None:
    for python in PYTHONS:
        names = [package.name for package in read_list(name) if package.is_for(python)]

        assert sorted(set(names)) == sorted(names)


def test_pip_is_held_to_versions_that_check_hashes_of_built_packages() -> None:
    (pip,) = (package for package in read_list(BUILD) if package.name == "pip")

    assert (23, 1) <= tuple(int(part) for part in pip.version.split(".")[:2])


@pytest.mark.parametrize(
    "line",
    [
        f"h11>=0.16 --hash=sha256:{SHA256}",
        f"h11 --hash=sha256:{SHA256}",
        "h11==0.16.0",
        f"h11==0.16.0 --hash=md5:{SHA256[:32]}",
        f"h11==0.16.0 --hash=sha256:{SHA256[1:]}",
        "-e .",
        "--extra-index-url https://mirror.example/simple",
    ],
)
def test_a_line_that_pins_no_bytes_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match=r"list\.txt: wanted `name==version --hash=sha256:.*found '"):
        parse_list(f"# why\nclick==8.5.1 \\\n    --hash=sha256:{SHA256}\n    # via x\n{line}\n", origin="list.txt")


def test_a_line_is_for_the_pythons_of_its_marker() -> None:
    text = "\n".join(
        f"numpy=={version} ; python_full_version {marker} \\\n    --hash=sha256:{SHA256}"
        for version, marker in (("1", "< '3.12'"), ("2", ">= '3.12'"))
    )

    old, new = parse_list(text, origin="list.txt")

    assert [(True, False), (False, True)] == [(one.is_for("3.11"), one.is_for("3.12")) for one in (old, new)]


def test_a_package_that_is_not_the_locked_one_is_named() -> None:
    text = f"pytest==0.0.1 --hash=sha256:{SHA256}\nno-such-package==1 --hash=sha256:{SHA256}\n"
    locked = {package.name: package for package in parse_list(text, origin="list.txt")}

    assert [
        "no-such-package (missing) in place of 1",
        f"pytest {pytest.__version__} in place of 0.0.1",
    ] == differences(locked)


def test_setup_installs_nothing_whose_hash_is_not_checked_in() -> None:
    lines = [
        line for line in (ROOT / "scripts/setup").read_text(encoding="utf-8").splitlines() if "${pip[@]}" in line
    ]

    assert 3 == len(lines)
    assert [] == [line for line in lines if "--require-hashes" not in line and "--no-deps" not in line]
    assert [] == [line for line in lines if "build.txt" not in line and "--no-build-isolation" not in line]
