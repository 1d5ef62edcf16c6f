"""Fetch pinned jars once, and verify them at every use.

`pip install` brings no jars, and `--packages` resolves versions again on each machine and each start. So the sets of
jars are lock lists (`locks.py`), and the Ivy that pyspark ships fetches a missing jar. This needs only Java and access
to a Maven repository.

A jar appears under its final name only by an atomic rename, after its hash is verified. An interrupted download leaves
a staging directory, which the next fetch removes. Concurrent processes queue on a file lock. A jar in the cache is
hashed at each use (44 MB: 0.13 s), so a file that was damaged or replaced later is refused too. If all jars are in the
cache, the network is not used.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from samzapy.adapters.installed_spark import pyspark_jar
from samzapy.adapters.maven.java import find_java
from samzapy.adapters.maven.locks import LockedJar, read_lock
from samzapy.errors import EnvironmentMissingError

# The broker's 42 jars took 36 s on a slow line; a download that takes longer than this hangs.
FETCH_DEADLINE_S = 900

_log = logging.getLogger(__name__)

REPOSITORY_VARIABLE = "SAMZAPY_MAVEN_REPOSITORY"
SETTINGS_VARIABLE = "SAMZAPY_IVY_SETTINGS"


def cache_root() -> Path:
    """The directory for files that can be fetched again.

    It is SAMZAPY_CACHE_DIR, or the user's cache directory.

    Raises:
        EnvironmentMissingError: there is neither, or the variable begins with `~`.
    """
    own = os.environ.get("SAMZAPY_CACHE_DIR")
    if own and own.startswith("~"):
        raise EnvironmentMissingError(
            f"SAMZAPY_CACHE_DIR: wanted a path, found {own!r}: ~ is no home directory here; write the path from / on"
        )
    if own:
        return Path(own).absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared).absolute() / "samzapy"
    try:
        return Path.home() / ".cache" / "samzapy"
    except RuntimeError as error:
        # As in a container that runs under a user id that /etc/passwd does not have.
        raise EnvironmentMissingError(
            f"wanted a directory for downloaded jars, found no home directory of user {os.getuid()}; "
            "set SAMZAPY_CACHE_DIR"
        ) from error


def jar_paths(lock: str, cache_dir: Path | None = None) -> tuple[Path, ...]:
    """The jars of a lock list as files on this machine, all verified.

    The missing ones are fetched first.

    Args:
        lock: the list's name, that of `connector_lock`, `KAFKA_BROKER` or `KAFKA_TOOLS`.
        cache_dir: where the jars are kept; `cache_root()` when not given.

    Returns:
        Absolute paths in the list's order.

    Raises:
        EnvironmentMissingError: no usable Java, a jar with another hash, no repository, or no place to write.
    """
    return verified_jars(read_lock(lock), cache_dir or cache_root())


def jars_there(lock: str, cache_dir: Path | None = None) -> tuple[Path, ...]:
    """The jars of a lock list that are in the cache, all verified.

    There are none if one is missing; nothing is fetched. They go on the class path of a JVM, which may load classes
    from them before it runs a line of samzapy (META-INF/services).

    Raises:
        EnvironmentMissingError: a jar with another hash.
    """
    jars, jar_dir = read_lock(lock), (cache_dir or cache_root()).absolute() / "jars"
    return () if _missing(jars, jar_dir) else _verified(jars, jar_dir)


def verified_jars(jars: Sequence[LockedJar], cache_dir: Path) -> tuple[Path, ...]:
    """Like `jar_paths`, for jars that are on no lock list."""
    jar_dir = cache_dir.absolute() / "jars"
    if _missing(jars, jar_dir):
        _fetch_missing(jars, jar_dir)
    return _verified(jars, jar_dir)


def _verified(jars: Sequence[LockedJar], jar_dir: Path) -> tuple[Path, ...]:
    for jar in jars:
        _refuse_other_bytes(jar, _home_of(jar, jar_dir))
    return tuple(_home_of(jar, jar_dir) for jar in jars)


def _home_of(jar: LockedJar, jar_dir: Path) -> Path:
    # By hash first, so that two releases of samzapy can share a cache; the name stays for class paths.
    return jar_dir / jar.sha256[:12] / jar.file_name


def _missing(jars: Sequence[LockedJar], jar_dir: Path) -> tuple[LockedJar, ...]:
    return tuple(jar for jar in jars if not _home_of(jar, jar_dir).exists())


def _fetch_missing(jars: Sequence[LockedJar], jar_dir: Path) -> None:
    with _exclusive(jar_dir):
        missing = _missing(jars, jar_dir)  # Again: the process we waited for may have fetched them.
        if not missing:
            return
        staging = jar_dir / "staging"
        if staging.exists():
            _log.info("an earlier download was cut off; starting it again")
            shutil.rmtree(staging)
        staging.mkdir()
        try:
            _log.info("fetching %d jars into %s", len(missing), jar_dir)
            _download(missing, staging)
            for jar in missing:
                staged = staging / "out" / jar.group / jar.file_name
                _refuse_other_bytes(jar, staged)
                home = _home_of(jar, jar_dir)
                home.parent.mkdir(exist_ok=True)
                staged.replace(home)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _exclusive(jar_dir: Path) -> Iterator[None]:
    """One fetching process per cache.

    The kernel frees the lock of a process that died.
    """
    try:
        jar_dir.mkdir(parents=True, exist_ok=True)
        lock_file = (jar_dir / "lock").open("w")
    except OSError as error:
        raise EnvironmentMissingError(
            f"The jar cache {jar_dir} cannot be written: {error}. Point SAMZAPY_CACHE_DIR at a directory of yours."
        ) from error
    with lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _refuse_other_bytes(jar: LockedJar, path: Path) -> None:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != jar.sha256:
        raise EnvironmentMissingError(
            f"{jar.coordinates} is not the jar that samzapy was locked to: wanted SHA-256 {jar.sha256}, found"
            f" {sha256} in {path}. Delete that file to have it fetched again, or point SAMZAPY_CACHE_DIR at"
            " another directory; if the error comes again, your repository serves other bytes."
        )


def _download(jars: Sequence[LockedJar], staging: Path) -> None:
    try:
        ran = run_ivy(ivy_file(jars), staging)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentMissingError(_no_repository(jars, f"no answer within {FETCH_DEADLINE_S} s")) from error
    absent = [jar for jar in jars if not (staging / "out" / jar.group / jar.file_name).is_file()]
    if absent or ran.returncode != 0:
        raise EnvironmentMissingError(_why_ivy_failed(absent or jars, ran.stdout))


def run_ivy(wishes: str, staging: Path) -> subprocess.CompletedProcess[str]:
    """Run pyspark's Ivy on an `ivy.xml`.

    The jars land in `<staging>/out/<group>/<file name>`. They come from the repository in SAMZAPY_MAVEN_REPOSITORY, or
    from Maven Central, as Ivy is configured by itself. Nothing outside `staging` is read or written, unless
    SAMZAPY_IVY_SETTINGS has a settings file. That file replaces ours, and may refer to files in the home directory.

    Raises:
        EnvironmentMissingError: one of the two variables is wrong, or both are set.
    """
    settings_path = staging / "settings.xml"
    own_settings, repository = os.environ.get(SETTINGS_VARIABLE), os.environ.get(REPOSITORY_VARIABLE)
    if own_settings and repository:
        raise EnvironmentMissingError(
            f"wanted one of {SETTINGS_VARIABLE} and {REPOSITORY_VARIABLE}, found both; unset one of them"
        )
    settings_path.write_text(ivy_settings(repository or None), encoding="utf-8")
    wishes_path = staging / "ivy.xml"
    wishes_path.write_text(wishes, encoding="utf-8")
    own_home = [f"-Duser.home={staging}"]
    if own_settings:
        settings_path, own_home = Path(own_settings), []
        if not settings_path.is_file():
            raise EnvironmentMissingError(
                f"{SETTINGS_VARIABLE} names {own_settings}, which is not a file."
                " Correct it, or unset it to use Maven Central."
            )
    java: list[str | Path] = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", *own_home]
    java += ["-cp", pyspark_jar("ivy"), "org.apache.ivy.Main", "-cache", staging / "cache"]
    files: list[str | Path] = ["-settings", settings_path, "-ivy", wishes_path]
    pattern = f"{staging}/out/[organisation]/[artifact]-[revision](-[classifier]).[ext]"
    return subprocess.run(
        [*java, *files, "-types", "jar", "-retrieve", pattern],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=FETCH_DEADLINE_S,
    )


def ivy_settings(repository: str | None) -> str:
    """Ivy's settings for one Maven repository: a URL, or Maven Central if None.

    Raises:
        EnvironmentMissingError: Ivy cannot read the URL, or it has a password, which Ivy would print.
    """
    root = ""
    if repository is not None:
        parts = urlsplit(repository)
        if parts.username is not None or parts.password is not None:
            raise EnvironmentMissingError(
                f"{REPOSITORY_VARIABLE}: wanted a URL without user and password, found one with; write them as "
                f"<credentials> in an Ivy settings file, and set {SETTINGS_VARIABLE} to that file"
            )
        if parts.scheme not in ("https", "http", "file") or not (parts.netloc or parts.path):
            raise EnvironmentMissingError(
                f"{REPOSITORY_VARIABLE}: wanted the URL of a Maven repository (https://, http:// or file:///), found "
                f"{repository!r}"
            )
        root = f" root={quoteattr(repository.rstrip('/') + '/')}"
    return f"""<ivysettings>
  <settings defaultResolver="maven"/>
  <resolvers>
    <ibiblio name="maven" m2compatible="true" usepoms="false"{root}/>
  </resolvers>
</ivysettings>
"""


def ivy_file(jars: Sequence[LockedJar]) -> str:
    """Ivy's list of dependencies.

    It has every jar by its full name, without the dependencies of their poms.
    """
    wishes = "\n".join(_ivy_dependency(jar) for jar in jars)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="samzapy" module="jars"/>
  <dependencies>
{wishes}
  </dependencies>
</ivy-module>
"""


def _ivy_dependency(jar: LockedJar) -> str:
    name, group = quoteattr(jar.artifact), quoteattr(jar.group)
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return (
        f"    <dependency org={group} name={name} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default->default">\n'
        f'      <artifact name={name} type="jar" ext="jar"{classifier}/>\n    </dependency>'
    )


def _why_ivy_failed(jars: Sequence[LockedJar], output: str) -> str:
    lines = [line.strip() for line in output.splitlines()]
    denied = next(
        (line for line in lines if "Server access error" in line or ("Host" in line and "not found" in line)),
        None,
    )
    if denied:
        return _no_repository(jars, denied)
    names = ", ".join(jar.coordinates for jar in jars)
    failures = [line.lstrip(": ") for line in lines if "#" in line and line.startswith((":: ", "[FAILED"))]
    report = " | ".join(dict.fromkeys(failures)) or " | ".join(lines[-5:])
    return (
        f"The Maven repository does not have: {names}. This happens with a mirror that lags behind Maven Central;"
        f" set {REPOSITORY_VARIABLE} to another one. Ivy said: {report}"
    )


def _no_repository(jars: Sequence[LockedJar], reason: str) -> str:
    names = ", ".join(jar.coordinates for jar in jars)
    return (
        f"No Maven repository could be reached to fetch: {names} ({reason}). Only access to a package"
        f" registry is needed: Maven Central, or a mirror of it whose URL is in {REPOSITORY_VARIABLE} (one that"
        f" needs a password: an Ivy settings file in {SETTINGS_VARIABLE}). Java takes a proxy from JAVA_TOOL_OPTIONS"
        " (-Dhttps.proxyHost=..., -Dhttps.proxyPort=...)."
    )
