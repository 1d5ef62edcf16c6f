"""Ids that are kept on a host.

Other processes are real ones, because a lock belongs to a process.
"""

import re
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

from samzapy.adapters.host.processor_ids import kept_processor_id
from samzapy.errors import EnvironmentMissingError

HOLDER = """
import sys
from pathlib import Path
from samzapy.adapters.host.processor_ids import kept_processor_id
with kept_processor_id(Path(sys.argv[1])) as kept:
    print(kept, flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(directory):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def id_of(directory):
    with kept_processor_id(directory) as kept:
        return kept


def test_an_id_survives_its_process(tmp_path):
    first = id_of(tmp_path / "ids")

    assert re.fullmatch(r"[A-Za-z0-9_]+", first)
    assert first == id_of(tmp_path / "ids")


def test_two_directories_have_different_ids(tmp_path):
    assert id_of(tmp_path / "a") != id_of(tmp_path / "b")


def test_two_processes_on_a_host_get_two_ids_and_get_them_again_after_a_restart(tmp_path):
    with another_process(tmp_path) as (_, one), another_process(tmp_path) as (_, two):
        three = id_of(tmp_path)
        assert 3 == len({one, two, three})

    with another_process(tmp_path) as (_, again), another_process(tmp_path) as (_, and_again):
        assert (one, two) == (again, and_again)


def test_the_id_of_a_killed_process_is_free(tmp_path):
    with another_process(tmp_path) as (process, one):
        assert one != id_of(tmp_path)
        process.kill()
        process.wait()

        assert one == id_of(tmp_path)


@pytest.mark.parametrize(
    "left", [b"", b"\xff\x00 half", b"../../etc", b"a-b"], ids=["nothing", "bytes", "path", "dash"]
)
def test_an_invalid_id_in_a_file_is_replaced(tmp_path, left):
    (tmp_path / "0").write_bytes(left)

    made = id_of(tmp_path)

    assert re.fullmatch(r"[A-Za-z0-9_]+", made)
    assert (tmp_path / "0").read_text() == made == id_of(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(EnvironmentMissingError, match=r"file/ids.*or set processor\.id"):
        id_of(tmp_path / "file" / "ids")


def test_another_user_s_id_is_not_world_writable(tmp_path):
    id_of(tmp_path)

    assert not stat.S_IMODE((tmp_path / "0").stat().st_mode) & 0o022
