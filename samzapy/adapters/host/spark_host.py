"""Examines the host for the needs of Spark's JVM, before that JVM starts.

spark-submit's JVM starts before the first line of a job does, and each of these faults ends it with a Java stack trace:
the host's own name does not resolve, the user has no entry in the user database (OpenShift, `runAsUser` of Kubernetes,
`docker run --user`), `/tmp` cannot be written, few files may be open, or the locale's encoding is ASCII, in which Java
replaces every other letter of a path by `?`. `SparkHost.environment` makes Spark work there; `SparkHost.check` refuses
the faults that no environment mends.
"""

from __future__ import annotations

import locale
import os
import pwd
import resource
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from samzapy.adapters.installed_spark import submit_option
from samzapy.errors import EnvironmentMissingError

FILES_MIN: Final = 512
"""A job of two cores and two partitions needs 350: Java holds each of Spark's jars open."""
_JAVA_TEMP: Final = Path("/tmp")  # noqa: S108  # where Java keeps its temporary files, whatever TMPDIR says
_UTF8_LOCALES: Final = ("C.UTF-8", "C.utf8", "en_US.UTF-8")
_SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_LOCAL_ADDRESS: Final = "SPARK_LOCAL_IP"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkHost:
    """The facts about a host that decide whether Spark's JVM starts there.

    Attributes:
        has_user_entry: whether the user database knows this process's user; if not, Java knows no home directory.
        home: the home directory to use; it need not exist.
        files_max: how many files may be open, the hard limit, up to which a JVM raises its own; None for no limit.
        temp_dir: where Java shall keep temporary files; empty for its default.
        has_temp_dir: whether there is a directory for temporary files at all.
        is_ascii: whether the locale's encoding is ASCII, as under `LC_ALL=C`.
        utf8_locale: a locale of this host whose encoding is UTF-8; empty where none is known.
        has_bash: spark-submit is a script for it.
    """

    has_user_entry: bool
    home: str
    files_max: int | None
    temp_dir: str
    has_temp_dir: bool
    is_ascii: bool
    utf8_locale: str
    has_bash: bool

    @classmethod
    def here(cls) -> SparkHost:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        temp_dir = _temp_dir()
        home = os.environ.get("HOME", "")
        is_ascii = is_ascii_locale()
        return cls(
            has_user_entry=has_user_entry(),
            home=home if home.startswith("/") else temp_dir or "/",
            files_max=None if hard == resource.RLIM_INFINITY else hard,
            temp_dir="" if os.access(_JAVA_TEMP, os.W_OK | os.X_OK) else temp_dir or "",
            has_temp_dir=temp_dir is not None,
            is_ascii=is_ascii,
            utf8_locale=_utf8_locale() if is_ascii else "",
            has_bash=shutil.which("bash") is not None,
        )

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """`given` and the variables that let spark-submit start here.

        Variables that are set stay.
        """
        # All connections of a container's session stay on the host. Otherwise Spark resolves the host's own name.
        environment = {_LOCAL_ADDRESS: "127.0.0.1", **given}
        options = []
        if not self.has_user_entry:
            options.append(("-Duser.home=", self.home))
        if self.temp_dir:
            options.append(("-Djava.io.tmpdir=", self.temp_dir))
        own = environment.get(_SUBMIT_OPTIONS, "")
        option_arguments = [submit_option(f"{name}{value}") for name, value in options if name not in own]
        if option_arguments:
            environment[_SUBMIT_OPTIONS] = " ".join([*option_arguments, *([own] if own else [])])
        if self.is_ascii and self.utf8_locale:
            environment["LC_ALL"] = self.utf8_locale
        return environment

    def check(self, arguments: Iterable[str]) -> None:
        """Refuse a host on which Spark cannot start.

        Args:
            arguments: of spark-submit, and other paths that its JVM is to read.

        Raises:
            EnvironmentMissingError: the text has the fault and its remedy.
        """
        if not self.has_bash:
            raise EnvironmentMissingError(
                "wanted bash in PATH, which spark-submit is written for, found none; install it"
            )
        if self.files_max is not None and self.files_max < FILES_MIN:
            raise EnvironmentMissingError(
                f"wanted at least {FILES_MIN} files that may be open, found a hard limit of {self.files_max}; raise it "
                "with `ulimit -Hn 4096`, LimitNOFILE=4096 of a systemd service, or --ulimit nofile=4096 of a container"
            )
        if not self.has_temp_dir:
            raise EnvironmentMissingError(
                "wanted a directory for temporary files, found that none of TMPDIR, /tmp and /var/tmp can be written; "
                "set TMPDIR to one that can, or mount one there"
            )
        if self.is_ascii and not self.utf8_locale:
            not_ascii = next((argument for argument in arguments if not argument.isascii()), None)
            if not_ascii is not None:
                raise EnvironmentMissingError(
                    f"wanted a locale with UTF-8 for {not_ascii!r}, found ASCII ({_locale_variables()}) and none of "
                    f"{', '.join(_UTF8_LOCALES)} on this host; install one and set LC_ALL to it, or use ASCII paths"
                )


def has_user_entry() -> bool:
    """Whether the user database knows this process's user."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def is_ascii_locale() -> bool:
    """Whether Java, started with this process's environment, reads paths as ASCII.

    Python reads them as UTF-8 under the same locale (PEP 540).
    """
    return locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX")


def refuse_replaced_letters(arguments: Iterable[str]) -> None:
    """Raise EnvironmentMissingError if Java has replaced letters of arguments.

    A JVM that reads ASCII does that. Such a letter has become `?`. A directory of another name would be made and used
    without a warning.
    """
    if not is_ascii_locale():
        return
    replaced = next((argument for argument in arguments if "?" in argument or "\ufffd" in argument), None)
    if replaced is not None:
        raise EnvironmentMissingError(
            f"wanted the arguments as they were given, found {replaced!r}, in which Java may have replaced letters by "
            f"`?`: its locale is ASCII ({_locale_variables()}); set LC_ALL=C.UTF-8, or use `samzapy run`"
        )


def _locale_variables() -> str:
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    return ", ".join(f"{name}={os.environ[name]}" for name in names if os.environ.get(name)) or "LC_ALL is not set"


def _utf8_locale() -> str:
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        for name in _UTF8_LOCALES:
            try:
                locale.setlocale(locale.LC_CTYPE, name)
            except locale.Error:
                continue
            return name
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return ""


def _temp_dir() -> str | None:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return None
