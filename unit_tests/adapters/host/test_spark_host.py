"""Faults of a host, found and mended.

Jobs on such hosts run in `integration_tests/bad_input`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace

import pytest

from samzapy.adapters.host.spark_host import FILES_MIN, SparkHost
from samzapy.errors import EnvironmentMissingError

GOOD = SparkHost(
    has_user_entry=True,
    home="/home/jane",
    files_max=4096,
    temp_dir="",
    has_temp_dir=True,
    is_ascii=False,
    utf8_locale="",
    has_bash=True,
)


def test_the_name_of_the_host_is_not_resolved() -> None:
    assert {"A": "1", "SPARK_LOCAL_IP": "127.0.0.1"} == GOOD.environment({"A": "1"})
    assert {"SPARK_LOCAL_IP": "10.0.0.1"} == GOOD.environment({"SPARK_LOCAL_IP": "10.0.0.1"})


def test_a_user_without_an_entry_gets_a_home_directory() -> None:
    unknown = replace(GOOD, has_user_entry=False)

    assert "-Duser.home=/home/jane" == unknown.environment({})["SPARK_SUBMIT_OPTS"]
    assert (
        "-Duser.home=/home/jane -Xss8m" == unknown.environment({"SPARK_SUBMIT_OPTS": "-Xss8m"})["SPARK_SUBMIT_OPTS"]
    )
    assert "-Duser.home=/data" == unknown.environment({"SPARK_SUBMIT_OPTS": "-Duser.home=/data"})["SPARK_SUBMIT_OPTS"]
    blank = replace(unknown, home="/home/Jane Doe").environment({})
    assert '"-Duser.home=/home/Jane Doe"' == blank["SPARK_SUBMIT_OPTS"]


def test_java_gets_another_directory_for_temporary_files_where_its_own_cannot_be_written() -> None:
    assert "-Djava.io.tmpdir=/data/tmp" == replace(GOOD, temp_dir="/data/tmp").environment({})["SPARK_SUBMIT_OPTS"]


def test_java_reads_paths_as_utf_8_under_an_ascii_locale() -> None:
    ascii_only = replace(GOOD, is_ascii=True, utf8_locale="C.UTF-8")

    assert "C.UTF-8" == ascii_only.environment({"LC_ALL": "C"})["LC_ALL"]
    assert "LC_ALL" not in GOOD.environment({})
    ascii_only.check(["/data/büro/job.py"])


def test_a_path_that_java_cannot_read_is_refused_where_no_locale_has_utf_8() -> None:
    ascii_only = replace(GOOD, is_ascii=True)

    ascii_only.check(["/data/job.py"])
    with pytest.raises(EnvironmentMissingError, match=r"wanted a locale with UTF-8 for '/data/büro/job.py'"):
        ascii_only.check(["/data/job.py", "/data/büro/job.py"])


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (
            replace(GOOD, files_max=FILES_MIN - 1),
            "wanted at least 512 files that may be open, found .* 511; raise it",
        ),
        (replace(GOOD, has_temp_dir=False), "wanted a directory for temporary files.*set TMPDIR"),
        (replace(GOOD, has_bash=False), "wanted bash in PATH.*install it"),
    ],
    ids=["files", "temporary files", "bash"],
)
def test_a_fault_that_no_environment_mends_is_refused_with_the_way_out(host: SparkHost, words: str) -> None:
    with pytest.raises(EnvironmentMissingError, match=words):
        host.check([])


def test_a_host_with_all_that_is_needed_is_taken() -> None:
    GOOD.check(["job.py"])
    replace(GOOD, files_max=None).check(["job.py"])
    replace(GOOD, files_max=FILES_MIN).check(["job.py"])


SEEN = "from samzapy.adapters.host.spark_host import SparkHost; print(SparkHost.here())"


def test_a_hard_limit_of_open_files_is_detected() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))

    seen = subprocess.run([sys.executable, "-c", SEEN], capture_output=True, text=True, preexec_fn=limit, check=True)

    assert "files_max=300" in seen.stdout


@pytest.mark.parametrize(
    ("locale", "is_ascii"), [("C", True), ("POSIX", True), ("no_SUCH.UTF-8", True), ("C.UTF-8", False)]
)
def test_an_ascii_locale_is_detected(locale: str, is_ascii: bool) -> None:
    environment = {**os.environ, "LC_ALL": locale}
    seen = subprocess.run(
        [sys.executable, "-c", SEEN], capture_output=True, text=True, env=environment, check=True
    ).stdout

    assert f"is_ascii={is_ascii}" in seen
    assert ("utf8_locale=''" in seen) is not is_ascii, "this host has C.UTF-8"


REPLACED = """
import sys
from samzapy.adapters.host.spark_host import refuse_replaced_letters
refuse_replaced_letters(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("locale", "argument", "is_refused"),
    [("C", "dir=/data/b??ro", True), ("C", "dir=/data/buero", False), ("C.UTF-8", "dir=/data/b??ro", False)],
)
def test_arguments_in_which_java_replaced_letters_are_refused(locale: str, argument: str, is_refused: bool) -> None:
    environment = {**os.environ, "LC_ALL": locale}
    ran = subprocess.run(
        [sys.executable, "-c", REPLACED, argument], capture_output=True, text=True, env=environment, check=False
    )

    assert is_refused is (ran.returncode != 0)
    assert is_refused is ("set LC_ALL=C.UTF-8, or use `samzapy run`" in ran.stderr)
