"""The outputs that were noted on a host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samzapy.adapters.host.outputs_file import OutputsFile
from samzapy.testing.builders import a_config


def test_a_note_of_one_process_is_read_by_another(tmp_path: Path) -> None:
    config = a_config(local_store_dir=str(tmp_path))

    one, other = OutputsFile.of(config), OutputsFile.of(config)
    for topic in ("sums", "totals", "sums"):
        one.note(topic)
        other.note(topic)

    assert ["sums", "totals"] == [*OutputsFile.of(config).topics()]
    (file,) = (tmp_path / config.job).iterdir()
    assert 2 == len(file.read_text().split()), "each once"


def test_the_file_is_read_again_only_after_a_new_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container asks for its topics each second."""
    one, other = OutputsFile.of(a_config(), tmp_path), OutputsFile.of(a_config(), tmp_path)
    one.note("sums")
    reads, read_text = [], Path.read_text

    def counted(path: Path, encoding: str, errors: str) -> str:
        reads.append(path)
        return read_text(path, encoding, errors)

    monkeypatch.setattr(Path, "read_text", counted)

    before = [other.topics() for _ in range(3)]
    reads_before = len(reads)
    one.note("totals")
    reads_of_note = len(reads) - reads_before

    assert [("sums",)] * 3 == before
    assert ("sums", "totals") == other.topics() == other.topics()
    assert (1, 2) == (reads_before, len(reads) - reads_of_note)


def test_the_newest_topic_is_the_last_one(tmp_path: Path) -> None:
    outputs = OutputsFile.of(a_config(), tmp_path)

    for topic in ("totals", "alerts", "sums", "totals"):
        outputs.note(topic)

    assert ["totals", "alerts", "sums"] == [*outputs.topics()]


def test_a_note_is_on_the_disk_when_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, synced = a_config(local_store_dir=str(tmp_path)), []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.is_dir() or path.read_text().split()))

    monkeypatch.setattr(os, "fsync", fsync)

    OutputsFile.of(config).note("sums")

    assert [(".outputs", ["sums"]), (config.job, True)] == synced


@pytest.mark.parametrize("damage", [b"su", b"\0" * 40, b"\xff\xfe"])
def test_damage_to_the_file_hides_no_other_topic(damage: bytes, tmp_path: Path) -> None:
    """A line was cut short on a full disk, or a power cut has left rubbish."""
    outputs = OutputsFile.of(a_config(), tmp_path)
    outputs.note("totals")
    with (tmp_path / ".outputs").open("ab") as file:
        file.write(damage)

    outputs.note("sums")

    assert {"sums", "totals"} == {*outputs.topics()} - {"su"}


def test_a_job_that_keeps_nothing_on_the_disk_notes_its_outputs_for_its_execution(tmp_path: Path) -> None:
    outputs = OutputsFile.of(a_config(), tmp_path)

    outputs.note("sums")

    assert ["sums"] == [*outputs.topics()]
    assert () == tuple(OutputsFile.of(a_config()).topics())


def test_a_process_whose_directory_is_none_knows_no_outputs(caplog: pytest.LogCaptureFixture) -> None:
    """A coordinator without containers may have /dev/null in its place."""
    outputs = OutputsFile.of(a_config(local_store_dir="/dev/null"))
    assert () == tuple(outputs.topics())

    outputs.note("sums")
    outputs.note("sums")

    assert 1 == caplog.text.count("cannot note the output sums")
