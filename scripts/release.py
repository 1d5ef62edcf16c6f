"""The files of a release, made from its tag. Nothing is published.

    scripts/release TAG [DIRECTORY]

TAG is `v` and the version, such as v0.2.0, and stands at HEAD of a clean work tree. The files are written to DIRECTORY,
`dist` if it is left out, which must not exist or be empty:

- the source distribution and the wheel, from the files of the commit and with its time, so that each run gives the
  same bytes with the same Python and setuptools;
- `samzapy-VERSION.cdx.json`, the bill of materials with licenses (scripts/sbom);
- `requirements-build.txt` and `requirements-runtime.txt`, the hashes for `pip install --require-hashes`;
- `SHA256SUMS`, for `sha256sum --check`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sbom import bill_of_materials
from wheel_locks import BUILD, DEV, LISTS, ROOT, RUNTIME, differences, pins

from samzapy.errors import ConfigError, SamzapyError

CHECKSUMS = "SHA256SUMS"


def main(arguments: Sequence[str]) -> int:
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    tag, directory = arguments[0], Path(arguments[1] if len(arguments) == 2 else ROOT / "dist")
    try:
        files = make_release(ROOT, tag, directory)
    except SamzapyError as error:
        print(f"scripts/release: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{directory}:", *(path.name for path in files), sep="\n  ")
    return 0


def make_release(repository: Path, tag: str, directory: Path) -> Sequence[Path]:
    """Write the files of the release; errors leave `directory` as it was.

    Raises:
        ConfigError: tag, work tree, changelog, environment or directory is not as a release needs it.
    """
    check_tag(repository, tag)
    check_environment()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"wanted an empty directory for the release, found {directory} with files; remove it")
    epoch = int(_git(repository, "log", "-1", "--format=%ct", tag))
    with tempfile.TemporaryDirectory(prefix="samzapy-release-") as name:
        made = Path(name, "made")
        build_distributions(export(repository, tag, Path(name, "tree")), made, epoch)
        bill = made / f"samzapy-{version_of(tag)}.cdx.json"
        bill.write_text(bill_of_materials(datetime.fromtimestamp(epoch, UTC)), encoding="utf-8")
        for lock in (BUILD, RUNTIME):
            shutil.copyfile(LISTS / f"{lock}.txt", made / f"requirements-{lock}.txt")
        sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(made.iterdir())]
        (made / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
        shutil.copytree(made, directory, dirs_exist_ok=True)
    return sorted(directory.iterdir())


def version_of(tag: str) -> str:
    return tag.removeprefix("v")


def check_tag(repository: Path, tag: str) -> None:
    """Refuse a tag that is not of this version and of the clean work tree."""
    if changed := _git(repository, "status", "--porcelain"):
        raise ConfigError(f"wanted a clean work tree, found changes:\n{changed}\nCommit them, or remove them.")
    head = _git(repository, "rev-parse", "HEAD")
    tagged = _git(repository, "rev-parse", "--verify", "--quiet", f"refs/tags/{tag}^{{commit}}", may_fail=True)
    if tagged != head:
        raise ConfigError(
            f"wanted the tag {tag} at HEAD ({head[:10]}), found it at {tagged[:10] or 'no commit'};"
            f" check out the tag, or make it: git tag --annotate {tag}"
        )
    text = (repository / "samzapy" / "version.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    if [f"v{text}" for text in version] != [tag]:
        raise ConfigError(
            f"wanted the tag of samzapy.version, v{' or v'.join(version)}, found {tag}; tag that version, or change"
            " samzapy/version.py and commit it"
        )
    changelog = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.findall(rf"^## \[{re.escape(version_of(tag))}\].*$", changelog, re.MULTILINE)
    if len(heading) != 1 or "unreleased" in heading[0]:
        raise ConfigError(
            f"wanted one heading of {version_of(tag)} with its date in CHANGELOG.md, found {heading or 'none'};"
            " write the date of the release there"
        )


def check_environment() -> None:
    """Refuse an environment whose packages are not the locked ones.

    The bill of materials lists them.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if others := differences(pins(DEV, python)):
        raise ConfigError(
            f"wanted the packages of requirements/{DEV}.txt in this environment, found {'; '.join(others)};"
            " remove .venv, and run scripts/setup"
        )


def export(repository: Path, commit: str, tree: Path) -> Path:
    """The files of a commit and nothing else, with modes that no umask changes."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=repository, capture_output=True, check=True
    )
    # Not by `tarfile`: its filters of names are missing in the Python 3.11.2 of Debian 12.
    tree.mkdir(exist_ok=True)
    extract = ["tar", "--extract", "--preserve-permissions", "--no-same-owner", "--directory", str(tree)]
    subprocess.run(extract, input=archive.stdout, check=True)
    return tree


def build_distributions(tree: Path, directory: Path, epoch: int) -> None:
    """The source distribution and the wheel of `tree`; needs no network.

    Each file has `epoch` as its time.
    """
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(directory), str(tree)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        raise ConfigError(f"wanted a wheel, found an error of the build; correct it:\n{built.stdout}{built.stderr}")
    (source,) = directory.glob("*.tar.gz")
    _settle(source, epoch)


def _settle(source: Path, epoch: int) -> None:
    """Pack a source distribution again, without this run's time, user and order.

    setuptools leaves them in it.
    """
    packed = io.BytesIO()
    with tarfile.open(source) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            # Only the fields of the header, without the fractions of a second.
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isreg() else None)
    source.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git(repository: Path, *arguments: str, may_fail: bool = False) -> str:
    ended = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True)
    if ended.returncode != 0 and not may_fail:
        raise ConfigError(f"wanted a Git repository at {repository}, found: {ended.stderr.strip()}")
    return ended.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
