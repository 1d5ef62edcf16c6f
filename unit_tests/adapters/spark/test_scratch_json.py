"""Files of the scratch directory that hold other bytes than their writers give."""

from __future__ import annotations

from pathlib import Path

import pytest

from samzapy.adapters.spark.ends_file import EndsFile
from samzapy.adapters.spark.slots import _SlotFile
from samzapy.adapters.spark.tail_board import ReportsFile, TailFile
from samzapy.errors import SamzapyError


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"query": "1"}', b"\xff", b"[" * 5_000], ids=["cut", "list", "kind", "utf-8", "deep"]
)
def test_each_reader_names_the_file_and_its_first_bytes(content: bytes, tmp_path: Path) -> None:
    for name in ("slot-0", "ends", "tail-positions", "reports"):
        (tmp_path / name).write_bytes(content + b"\n")
    readers = {
        "slot-0": _SlotFile(tmp_path / "slot-0").read,
        "ends": lambda: EndsFile(tmp_path).look(1),
    }
    if content != b"[]":
        readers["tail-positions"] = TailFile(tmp_path).read_from
    if content != b'{"query": "1"}':
        readers["reports"] = ReportsFile(tmp_path / "reports").read_on

    for name, read in readers.items():
        with pytest.raises(
            SamzapyError, match=f"/{name}: wanted what a process of this container writes there"
        ) as given:
            read()
        assert len(str(given.value)) < 1_000
