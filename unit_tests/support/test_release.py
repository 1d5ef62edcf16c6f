"""The files of a release, made offline from a small repository with this tree."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import pytest
import release
from release import CHECKSUMS, ROOT, build_distributions, check_tag, export, make_release

from samzapy.errors import ConfigError
from samzapy.version import __version__

TAG = f"v{__version__}"
EPOCH = 1_700_000_000
FILES = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "SECURITY.md", "pyproject.toml", "setup.cfg")
FOLDERS = ("deploy", "docs", "requirements", "samzapy")


def git(repository: Path, *arguments: str) -> None:
    identity = {f"GIT_{role}_{part}": "release" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    dates = {f"GIT_{role}_DATE": f"{EPOCH} +0000" for role in ("AUTHOR", "COMMITTER")}
    # Without the configuration of the user that runs the test.
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", *arguments],
        cwd=repository,
        env={**os.environ, **identity, **dates, **isolated},
        check=True,
        timeout=60,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A clean work tree of this release, whose changelog has its date."""
    tree = tmp_path / "repository"
    tree.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    changelog = tree / "CHANGELOG.md"
    text = re.sub(r"^(## \[.*?\]) - unreleased$", r"\1 - 2026-11-27", changelog.read_text(), flags=re.MULTILINE)
    changelog.write_text(text)
    git(tree, "init", "--quiet", "--initial-branch=main")
    commit(tree)
    return tree


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "a release")
    git(repository, "tag", "--force", TAG)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def sums_of(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


@pytest.mark.slow
def test_two_builds_of_a_tag_have_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    """Elsewhere, at another time and under another umask."""
    for number, mask in enumerate((0o022, 0o077)):
        with umask(mask):
            build_distributions(export(repository, TAG, tmp_path / f"tree {number}"), tmp_path / f"{number}", EPOCH)

    assert {f"samzapy-{__version__}.tar.gz", f"samzapy-{__version__}-py3-none-any.whl"} == {
        path.name for path in (tmp_path / "0").iterdir()
    }
    assert sums_of(tmp_path / "0") == sums_of(tmp_path / "1")


@pytest.mark.slow
def test_a_release_has_distributions_locks_bill_and_checksums(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other packages than the locked ones are refused below; here the environment may be any.
    monkeypatch.setattr(release, "check_environment", lambda: None)

    files = make_release(repository, TAG, tmp_path / "dist")

    source, wheel = f"samzapy-{__version__}.tar.gz", f"samzapy-{__version__}-py3-none-any.whl"
    locks = {"requirements-build.txt", "requirements-runtime.txt"}
    assert {source, wheel, f"samzapy-{__version__}.cdx.json", CHECKSUMS} | locks == {path.name for path in files}
    lines = (tmp_path / "dist" / CHECKSUMS).read_text().splitlines()
    assert sums_of(tmp_path / "dist").items() >= {line[66:]: line[:64] for line in lines}.items()
    assert len(files) - 1 == len(lines)
    with tarfile.open(tmp_path / "dist" / source) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
        assert {EPOCH} == {member.mtime for member in members.getmembers()}
    assert {"docs/guides/production-checklist.md", "requirements/runtime.txt", "CHANGELOG.md"} <= names
    assert {"deploy/grafana/samzapy.json", "deploy/prometheus/samzapy.rules.yml"} <= names
    assert {"samzapy/schemas/grant.avsc", "samzapy/adapters/maven/kafka-broker.lock"} <= names
    with ZipFile(tmp_path / "dist" / wheel) as content:
        assert {"samzapy", f"samzapy-{__version__}.dist-info"} == {
            name.partition("/")[0] for name in content.namelist()
        }


def test_a_tag_at_head_of_a_clean_tree_is_accepted(repository: Path) -> None:
    check_tag(repository, TAG)


def test_a_change_that_is_not_committed_is_refused(repository: Path) -> None:
    (repository / "samzapy" / "more.py").touch()

    with pytest.raises(ConfigError, match=r"wanted a clean work tree, found changes:\n\?\? samzapy/more.py"):
        check_tag(repository, TAG)


def test_a_tag_that_is_missing_or_elsewhere_is_refused(repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"wanted the tag v9\.9 at HEAD .* found it at no commit; check out"):
        check_tag(repository, "v9.9")
    (repository / "samzapy" / "more.py").touch()
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "after the tag")

    with pytest.raises(ConfigError, match=rf"wanted the tag {TAG} at HEAD .* found it at [0-9a-f]{{10}}; check out"):
        check_tag(repository, TAG)


@pytest.mark.parametrize("tag", ["v0.0.1", __version__])
def test_a_tag_of_another_version_is_refused(repository: Path, tag: str) -> None:
    git(repository, "tag", tag)

    with pytest.raises(ConfigError, match=f"wanted the tag of samzapy.version, {TAG}, found {tag}; tag that"):
        check_tag(repository, tag)


@pytest.mark.parametrize("heading", [f"## [{__version__}] - unreleased", ""])
def test_a_version_without_its_date_in_the_changelog_is_refused(repository: Path, heading: str) -> None:
    changelog = repository / "CHANGELOG.md"
    text = re.sub(rf"^## \[{re.escape(__version__)}\].*$", heading, changelog.read_text(), flags=re.MULTILINE)
    changelog.write_text(text)
    commit(repository)

    with pytest.raises(ConfigError, match=rf"wanted one heading of {re.escape(__version__)} with its date"):
        check_tag(repository, TAG)


def test_files_of_another_release_are_not_mixed_in(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "check_environment", lambda: None)
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "samzapy-0.0.1.tar.gz").touch()

    with pytest.raises(ConfigError, match="wanted an empty directory for the release, found .*/dist with files"):
        make_release(repository, TAG, tmp_path / "dist")


def test_packages_that_are_not_the_locked_ones_are_refused(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "differences", lambda locked: ["pandas 2.3.3 in place of 3.1.1"])

    with pytest.raises(ConfigError, match=r"found pandas 2\.3\.3 in place of 3\.1\.1; remove \.venv"):
        make_release(repository, TAG, tmp_path / "dist")

    assert not (tmp_path / "dist").exists()


def test_a_directory_that_is_no_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"wanted a Git repository at {tmp_path}, found: "):
        check_tag(tmp_path, TAG)
