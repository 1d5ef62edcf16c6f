"""Reports of ends in files: kept, handed over once, never in the way of a start."""

import json
import logging
import os
from pathlib import Path

import pytest

from samzapy.adapters.host.end_files import FILES_MAX, EndFiles
from samzapy.model.container_end import ContainerEnd


def an_end(execution_id: str = "e1", **changed: object) -> ContainerEnd:
    fields = {
        "processor_id": "0",
        "execution_id": execution_id,
        "host": "host-a",
        "exit_code": 7,
        "error": "ValueError",
        "message": "no such plane",
        "ended_at_ms": 5,
    }
    return ContainerEnd(**(fields | changed))


def test_the_next_start_reads_the_report_of_the_last_one(tmp_path: Path) -> None:
    EndFiles(tmp_path / "ends").write(an_end())

    assert EndFiles(tmp_path / "ends").unrecorded({}) == (an_end(),)


def test_a_report_is_readable_for_its_user_only(tmp_path: Path) -> None:
    EndFiles(tmp_path / "ends").write(an_end())

    (path,) = (tmp_path / "ends").iterdir()
    assert path.name == "e1.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ends").stat().st_mode & 0o777 == 0o700


def test_a_report_is_removed_once_the_stream_has_it(tmp_path: Path) -> None:
    files = EndFiles(tmp_path)
    files.write(an_end())
    files.write(an_end("e2", processor_id="1"))

    assert len(files.unrecorded({})) == 2
    assert files.unrecorded({"0": an_end()}) == (an_end("e2", processor_id="1"),)
    assert [path.name for path in tmp_path.iterdir()] == ["e2.json"]


def test_a_report_stays_while_the_stream_has_only_the_report_of_the_finder(tmp_path: Path) -> None:
    files = EndFiles(tmp_path)
    files.write(an_end())

    assert files.unrecorded({"0": an_end(error="", exit_code=-1)}) == (an_end(),)


def test_a_report_that_a_later_end_has_replaced_is_removed(tmp_path: Path) -> None:
    files = EndFiles(tmp_path)
    files.write(an_end())

    assert files.unrecorded({"0": an_end("e0", ended_at_ms=4)}) == (an_end(),)
    assert files.unrecorded({"0": an_end("e2", ended_at_ms=6)}) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"processorId": "0"}',
        json.dumps(an_end("another").as_json()).encode(),
        b" " * 20_000,
    ],
)
def test_a_damaged_file_is_put_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / "e1.json").write_bytes(content)

    with caplog.at_level(logging.WARNING):
        assert EndFiles(tmp_path).read() == ()

    assert "is put aside" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["e1.damaged"]


def test_the_files_of_a_host_are_bounded(tmp_path: Path) -> None:
    files = EndFiles(tmp_path)
    for number in range(FILES_MAX + 5):
        files.write(an_end(f"e{number}"))
        os.utime(tmp_path / f"e{number}.json", (number, number))

    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == FILES_MAX
    assert f"e{FILES_MAX + 4}.json" in names


@pytest.fixture
def _another_container_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unfinished report is there for `iterdir`, and has its name a moment later."""
    unfinished, stat = tmp_path / ".unfinished", Path.stat
    unfinished.write_text(json.dumps(an_end("e9").as_json()))

    def stat_after_rename(path: Path, **options: bool) -> os.stat_result:
        if path == unfinished and os.path.exists(unfinished):
            unfinished.rename(tmp_path / "e9.json")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat_after_rename)


@pytest.mark.usefixtures("_another_container_writes")
def test_a_report_is_kept_while_another_container_writes_its_own(tmp_path: Path) -> None:
    EndFiles(tmp_path).write(an_end())

    assert {an_end(), an_end("e9")} == set(EndFiles(tmp_path).read())


def test_reports_are_read_while_another_container_removes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, stat = EndFiles(tmp_path), Path.stat
    files.write(an_end())
    files.write(an_end("e2"))

    def stat_after_removal(path: Path, **options: bool) -> os.stat_result:
        (tmp_path / "e2.json").unlink(missing_ok=True)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", stat_after_removal)

    assert files.read() == (an_end(),)


def test_a_report_is_kept_although_older_ones_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(path)

    for number in range(FILES_MAX):
        (tmp_path / f"f{number}.json").touch()
    monkeypatch.setattr(Path, "unlink", refuse)

    EndFiles(tmp_path).write(an_end())

    assert (tmp_path / "e1.json").exists()


def test_a_directory_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ends").write_text("a file")
    files = EndFiles(tmp_path / "ends")

    with caplog.at_level(logging.WARNING):
        files.write(an_end())

    assert "cannot keep the reason" in caplog.text
    assert files.read() == ()


def test_a_job_without_a_local_directory_keeps_nothing() -> None:
    assert EndFiles.of(None, "flights-1") is None
