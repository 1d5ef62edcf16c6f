"""The cache, without a network.

`java` is a script here, which answers as Ivy does from a directory of jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from samzapy.adapters.maven import fetch
from samzapy.adapters.maven.fetch import REPOSITORY_VARIABLE, SETTINGS_VARIABLE, cache_root, jars_there, verified_jars
from samzapy.adapters.maven.locks import LockedJar
from samzapy.errors import EnvironmentMissingError
from samzapy.testing.waiting import wait_until

JAVA_THAT_PLAYS_IVY = """#!{python}
import sys
from pathlib import Path
from zipfile import ZipFile
from xml.etree import ElementTree

here, arguments = Path({here!r}), sys.argv[1:]
if "-version" in arguments:
    sys.exit(print('openjdk version "17.0.1"', file=sys.stderr))
with (here / "calls").open("a") as calls:
    print(*arguments, file=calls)
if (here / "unreachable").exists():
    sys.exit(print("Server access error at url https://repo (java.net.ConnectException)") or 1)
option = dict(zip(arguments, arguments[1:]))
(here / "settings").write_text(Path(option["-settings"]).read_text())
for wish in ElementTree.parse(option["-ivy"]).iter("dependency"):
    name = wish.get("name") + "-" + wish.get("rev") + ".jar"
    if not (here / "repository" / name).exists():
        sys.exit(print(f":: {{wish.get('org')}}#{{wish.get('name')}};{{wish.get('rev')}}: not found") or 1)
    target = Path(option["-retrieve"].partition("[")[0], wish.get("org"), name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes((here / "repository" / name).read_bytes())
"""


class Repository:
    """A Maven repository of one directory, and the `java` that serves it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "repository").mkdir(parents=True)
        java = directory / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(JAVA_THAT_PLAYS_IVY.format(python=sys.executable, here=str(directory)))
        java.chmod(0o755)

    def publish(self, artifact: str, content: bytes) -> LockedJar:
        """Puts a jar into the repository, and locks it."""
        sha256 = hashlib.sha256(content).hexdigest()
        jar = LockedJar(group="org.a", artifact=artifact, version="1", classifier=None, sha256=sha256)
        (self.directory / "repository" / jar.file_name).write_bytes(content)
        return jar

    def exchange(self, jar: LockedJar, content: bytes) -> None:
        (self.directory / "repository" / jar.file_name).write_bytes(content)

    def withdraw(self, jar: LockedJar) -> None:
        (self.directory / "repository" / jar.file_name).unlink()

    def cut_off(self) -> None:
        (self.directory / "unreachable").touch()

    @property
    def roots(self) -> list[str | None]:
        """The repository of the last call of Ivy; None for its default."""
        settings = ElementTree.parse(self.directory / "settings")
        return [resolver.get("root") for resolver in settings.iter("ibiblio")]

    @property
    def calls(self) -> list[str]:
        calls = self.directory / "calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "maven" / "java"))
    for name in (SETTINGS_VARIABLE, REPOSITORY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return Repository(tmp_path / "maven")


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_missing_jars_are_fetched_and_come_in_the_lists_order(repository: Repository, cache_dir: Path) -> None:
    jars = [repository.publish("b", b"B"), repository.publish("a", b"A")]

    paths = verified_jars(jars, cache_dir)

    assert [("b-1.jar", b"B"), ("a-1.jar", b"A")] == [(path.name, path.read_bytes()) for path in paths]


def test_jars_in_the_cache_are_not_fetched_again(repository: Repository, cache_dir: Path) -> None:
    old = repository.publish("old", b"old")
    verified_jars([old], cache_dir)
    new = repository.publish("new", b"new")

    verified_jars([old, new], cache_dir)
    verified_jars([old, new], cache_dir)

    assert 2 == len(repository.calls)
    assert not (cache_dir / "jars" / "staging").exists()


@pytest.fixture
def locked(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> list[LockedJar]:
    """The jars of the only lock list here."""
    jars = [repository.publish("a", b"A"), repository.publish("b", b"B")]
    monkeypatch.setattr(fetch, "read_lock", lambda _: tuple(jars))
    return jars


def test_without_waiting_either_all_jars_are_given_or_none(
    repository: Repository, cache_dir: Path, locked: list[LockedJar]
) -> None:
    verified_jars(locked[1:], cache_dir)
    assert () == jars_there("any", cache_dir)

    paths = verified_jars(locked, cache_dir)

    assert paths == jars_there("any", cache_dir)
    assert 2 == len(repository.calls)


@pytest.mark.parametrize("altered", [0, 1])
def test_no_class_path_has_a_jar_of_which_one_byte_is_altered(
    cache_dir: Path, locked: list[LockedJar], altered: int
) -> None:
    """A JVM may load classes from its class path before it runs a line of samzapy."""
    path = verified_jars(locked, cache_dir)[altered]
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]))

    with pytest.raises(EnvironmentMissingError, match=f"is not the jar that samzapy was locked to.* in {path}"):
        jars_there("any", cache_dir)


def test_a_jar_that_is_on_no_list_is_given_to_no_class_path(cache_dir: Path, locked: list[LockedJar]) -> None:
    first, _ = verified_jars(locked, cache_dir)
    (first.parent / "unlisted.jar").write_bytes(b"C")
    (cache_dir / "jars" / "unlisted.jar").write_bytes(b"C")

    assert ["a-1.jar", "b-1.jar"] == [path.name for path in jars_there("any", cache_dir)]
    assert ["a-1.jar", "b-1.jar"] == [path.name for path in verified_jars(locked, cache_dir)]


def test_a_jar_with_other_bytes_from_the_repository_is_refused(repository: Repository, cache_dir: Path) -> None:
    jar = repository.publish("a", b"as locked")
    repository.exchange(jar, b"something else")

    with pytest.raises(EnvironmentMissingError) as refused:
        verified_jars([jar], cache_dir)

    assert "org.a:a:1" in str(refused.value)
    assert jar.sha256 in str(refused.value)
    assert hashlib.sha256(b"something else").hexdigest() in str(refused.value)
    assert not list(cache_dir.rglob("*.jar"))


def test_a_jar_that_was_damaged_in_the_cache_is_refused_until_it_is_deleted(
    repository: Repository, cache_dir: Path
) -> None:
    jar = repository.publish("a", b"as locked")
    (path,) = verified_jars([jar], cache_dir)
    path.write_bytes(b"as l0cked")

    with pytest.raises(EnvironmentMissingError, match=rf"org\.a:a:1 .* in {path}\. Delete that file"):
        verified_jars([jar], cache_dir)
    path.unlink()

    assert b"as locked" == verified_jars([jar], cache_dir)[0].read_bytes()


def test_a_download_that_was_cut_off_is_thrown_away(
    repository: Repository, cache_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    jar = repository.publish("a", b"all of it")
    half = cache_dir / "jars" / "staging" / "out" / "org.a" / "a-1.jar"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"all")

    with caplog.at_level("INFO"):
        (path,) = verified_jars([jar], cache_dir)

    assert b"all of it" == path.read_bytes()
    assert "an earlier download was cut off" in caplog.text


def test_a_process_that_waited_takes_the_jars_of_the_other_one(repository: Repository, cache_dir: Path) -> None:
    jar = repository.publish("a", b"A")
    home = cache_dir / "jars" / jar.sha256[:12] / jar.file_name
    (cache_dir / "jars").mkdir(parents=True)
    with ThreadPoolExecutor() as pool, (cache_dir / "jars" / "lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        waiting = pool.submit(verified_jars, [jar], cache_dir)
        wait_until(lambda: _waits_for_a_lock(os.getpid()), 10.0, "the second fetch to queue on the lock")
        home.parent.mkdir()
        home.write_bytes(b"A")
        fcntl.flock(lock_file, fcntl.LOCK_UN)

        assert (home,) == waiting.result(timeout=10)
    assert [] == repository.calls


def test_an_unreachable_repository_is_an_error_with_the_access_that_is_needed(
    repository: Repository, cache_dir: Path
) -> None:
    here, missing = repository.publish("here", b"1"), repository.publish("missing", b"2")
    verified_jars([here], cache_dir)
    repository.cut_off()

    with pytest.raises(EnvironmentMissingError) as refused:
        verified_jars([here, missing], cache_dir)

    assert "could be reached to fetch: org.a:missing:1 (Server access error" in str(refused.value)
    assert "Only access to a package registry is needed" in str(refused.value)
    assert "org.a:here" not in str(refused.value)


def test_a_jar_that_the_repository_lacks_is_named(repository: Repository, cache_dir: Path) -> None:
    jar = repository.publish("a", b"A")
    repository.withdraw(jar)

    with pytest.raises(EnvironmentMissingError, match=r"does not have: org\.a:a:1.*Ivy said: org\.a#a;1: not found"):
        verified_jars([jar], cache_dir)


def test_a_settings_file_of_ones_own_is_given_to_ivy(
    repository: Repository, cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "company.xml"
    settings.write_text("<ivysettings/>")
    monkeypatch.setenv("SAMZAPY_IVY_SETTINGS", str(settings))

    verified_jars([repository.publish("a", b"A")], cache_dir)

    assert f"-settings {settings} " in repository.calls[0]
    assert "-Duser.home" not in repository.calls[0]


def test_a_settings_file_that_is_not_there_is_named(
    repository: Repository, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAMZAPY_IVY_SETTINGS", "/nowhere/ivy.xml")

    with pytest.raises(EnvironmentMissingError, match="SAMZAPY_IVY_SETTINGS names /nowhere/ivy.xml"):
        verified_jars([repository.publish("a", b"A")], cache_dir)


def test_without_a_setting_ivy_asks_the_repository_that_it_knows_itself(
    repository: Repository, cache_dir: Path
) -> None:
    verified_jars([repository.publish("a", b"A")], cache_dir)

    assert [None] == repository.roots


@pytest.mark.parametrize(
    "url", ["https://mirror.example/maven?a=1&b=2", "http://mirror.example/maven/", "file:///srv/m2"]
)
def test_another_repository_is_asked_where_one_is_named(
    repository: Repository, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, url)

    verified_jars([repository.publish("a", b"A")], cache_dir)

    assert [url.rstrip("/") + "/"] == repository.roots


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mirror.example/maven", "wanted the URL of a Maven repository .*, found 'mirror.example/maven'"),
        ("ftp://mirror.example", "wanted the URL of a Maven repository .*, found 'ftp://mirror.example'"),
        ("https://", "wanted the URL of a Maven repository"),
        ("https://me:hunter2@mirror.example", "wanted a URL without user and password, found one with; write them"),
    ],
)
def test_a_repository_that_cannot_be_asked_is_named_and_no_password_is(
    repository: Repository, cache_dir: Path, monkeypatch: pytest.MonkeyPatch, url: str, words: str
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, url)

    with pytest.raises(EnvironmentMissingError, match=f"{REPOSITORY_VARIABLE}: {words}") as refused:
        verified_jars([repository.publish("a", b"A")], cache_dir)

    assert "hunter2" not in str(refused.value)


def test_a_repository_and_a_settings_file_are_not_taken_together(
    repository: Repository, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPOSITORY_VARIABLE, "https://mirror.example/maven")
    monkeypatch.setenv(SETTINGS_VARIABLE, "/etc/ivy.xml")

    with pytest.raises(EnvironmentMissingError, match="found both; unset one of them"):
        verified_jars([repository.publish("a", b"A")], cache_dir)


def test_ivy_leaves_the_home_directory_alone(repository: Repository, cache_dir: Path) -> None:
    verified_jars([repository.publish("a", b"A")], cache_dir)

    assert f"-Duser.home={cache_dir}/jars/staging" in repository.calls[0]


def test_a_cache_that_cannot_be_written_is_an_error_with_the_variable_to_set(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EnvironmentMissingError, match=r"cannot be written.*Point SAMZAPY_CACHE_DIR"):
        verified_jars([repository.publish("a", b"A")], tmp_path / "file")


def test_the_environment_sets_the_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("SAMZAPY_CACHE_DIR", raising=False)
    assert Path("/home/me/.cache/samzapy") == cache_root()

    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert Path("/var/cache/me/samzapy") == cache_root()

    monkeypatch.setenv("SAMZAPY_CACHE_DIR", "/data/samzapy")
    assert Path("/data/samzapy") == cache_root()


def test_a_cache_path_that_begins_with_a_tilde_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMZAPY_CACHE_DIR", "~/cache")

    with pytest.raises(EnvironmentMissingError, match="SAMZAPY_CACHE_DIR: wanted a path, found '~/cache'"):
        cache_root()


def test_without_a_home_directory_the_error_has_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "SAMZAPY_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 1_000_650_000)

    with pytest.raises(EnvironmentMissingError, match="no home directory of user 1000650000; set SAMZAPY_CACHE_DIR"):
        cache_root()


def _waits_for_a_lock(pid: int) -> bool:
    lines = Path("/proc/locks").read_text().splitlines()
    return any(fields[1] == "->" and fields[5] == str(pid) for fields in map(str.split, lines))
