"""No record on a topic and no HTTP body crashes a reader or exhausts its memory.

Each unreadable record is listed.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form

from samzapy.coordinator.replay import replay
from samzapy.errors import CorruptRecordError, UnknownSchemaError
from samzapy.stream.audit import ForeignEntry, UnreadableEntry, history
from samzapy.stream.codec import VALUE_BYTES_MAX, encode, headers
from samzapy.stream.export import FORMAT, read_export
from samzapy.stream.log import LogRecord
from samzapy.stream.records import EpochPut, GrantPut, SchemaPut
from samzapy.stream.single_object import MARKER
from samzapy.testing.builders import a_grant
from unit_tests.hostile.assault import Figures, codec_of, is_refused
from unit_tests.hostile.codec import record_of
from unit_tests.hostile.codecs import CODECS
from unit_tests.hostile.file_codecs import FILES
from unit_tests.hostile.value_codecs import VALUES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MUTATIONS = int(os.environ.get("SAMZAPY_MUTATIONS", "5000"))
GROWTH_MB_MAX = 100
WIDEST_MB_MAX = 200
SLOWEST_MS_MAX = 5_000
"""Of the process's own time; memory that grows takes its time too."""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


# The small ones share a process: its start takes longer than they do.
TOGETHER = {"values": VALUES, "files": FILES}
ALONE = {codec.name: (codec,) for codec in CODECS if codec not in VALUES + FILES}


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_no_mutated_record_crashes_its_reader_or_makes_it_swell_and_each_is_listed(name: str) -> None:
    codecs = {**ALONE, **TOGETHER}[name]
    ran = python("-m", "unit_tests.hostile.assault", *(codec.name for codec in codecs), str(MUTATIONS))

    assert 0 == ran.returncode, ran.stderr[-4000:]
    for codec, line in zip(codecs, ran.stdout.splitlines(), strict=True):
        figures = json.loads(line)
        assert (codec.name, MUTATIONS) == (figures["codec"], figures["records"])
        # All refused would be no test of the reader, none no test of the refusal.
        assert 0.05 * MUTATIONS < figures["refused"] < MUTATIONS
        assert figures["listed"] == (figures["refused"] if codec.listed is not None else 0)
        assert figures["grew_mb"] < GROWTH_MB_MAX, figures
        assert figures["slowest_ms"] < SLOWEST_MS_MAX, figures


CORPUS = sorted((ROOT / "unit_tests" / "hostile" / "corpus").glob("*/*"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_bytes_that_once_broke_a_reader_are_read_or_refused(path: Path) -> None:
    codec = codec_of(path.parent.name)

    is_refused(codec, record_of(codec, path.read_bytes()), Figures(codec=codec.name))


def test_a_reader_that_raises_another_error_is_reported() -> None:
    codec = replace(codec_of("changelog-msgpack"), read=lambda record: (record.value or b"").decode())

    with pytest.raises(UnicodeDecodeError):
        is_refused(codec, record_of(codec, b"\x00\xff"), Figures(codec=codec.name))


# --- fastavro's two bombs ---

RECURSIVE = {
    "type": "record",
    "name": "Node",
    "namespace": "samzapy",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
ZERO_WIDTH = {
    "type": "record",
    "name": "Nothings",
    "namespace": "samzapy",
    "fields": [{"name": "items", "type": {"type": "array", "items": "null"}}],
}
NODES = 50_000
NOTHINGS = 10_000_000
BOMBS = {
    # Each node has one byte for the next one; each of the others needs no byte at all.
    "recursive": (RECURSIVE, b"\x02" * NODES + b"\x00"),
    "zero-width": (ZERO_WIDTH, b""),
}


def long(number: int) -> bytes:
    """A number as Avro writes it."""
    zigzag, encoded = number << 1, bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def body_of(name: str) -> bytes:
    return BOMBS[name][1] or long(NOTHINGS) + b"\x00"


def bomb(name: str) -> tuple[str, bytes]:
    """The fingerprint of its schema, and a value that names that schema."""
    digits = fingerprint(to_parsing_canonical_form(BOMBS[name][0]), "CRC-64-AVRO")
    return digits, MARKER + bytes.fromhex(digits) + body_of(name)


def stream_with(name: str) -> list[LogRecord]:
    """A good record, the bomb's schema as in the stream, the bomb, a good record."""
    digits, value = bomb(name)
    entries: Sequence[tuple[bytes, bytes | None]] = [
        encode(EpochPut(epoch=1)),
        encode(SchemaPut(fingerprint=digits, schema_json=json.dumps(BOMBS[name][0]))),
        (b"epoch", value),
        encode(EpochPut(epoch=2)),
    ]
    return [
        LogRecord(offset=offset, timestamp_ms=0, key=key, value=value, headers=leaders_headers(offset))
        for offset, (key, value) in enumerate(entries)
    ]


def leaders_headers(seq: int) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(headers(term=1, seq=seq, event="e", cause="c", actor="a").items())


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_with_the_leaders_headers_is_listed_and_stops_every_reader_that_would_decide_on_it(name: str) -> None:
    records = stream_with(name)

    entries = list(history(records, topic="t"))

    assert [False, False, True, False] == [isinstance(entry, UnreadableEntry) for entry in entries]
    assert "t-0 at offset 2" in str(entries[2])
    with pytest.raises(UnknownSchemaError, match="offset 2"):
        replay(records, topic="t")


@pytest.mark.parametrize("name", BOMBS)
def test_a_foreign_bomb_is_listed_and_stops_nothing(name: str) -> None:
    """Behind the header of a schema of ours, and behind that of its own."""
    _, good, bomb_of_its_own, last = stream_with(name)
    epoch = encode(EpochPut(epoch=1))[1] or b""
    last = last._replace(headers=leaders_headers(2))
    for value in (bomb_of_its_own.value, epoch[:10] + body_of(name)):
        records = [stream_with(name)[0], good, bomb_of_its_own._replace(value=value, headers=()), last]

        replayed = replay(records, topic="t")

        assert (replayed.state.epoch, replayed.foreign_count) == (2, 1)
        (foreign,) = [entry for entry in history(records, topic="t") if isinstance(entry, ForeignEntry)]
        assert not foreign.is_readable
        assert "t-0 at offset 2" in foreign.reason


def avro_key(codec: Any) -> bytes | None:
    """A key under which the codec reads Avro; None where it reads none."""
    return next((key for key, value in codec.originals if value is not None and value.startswith(MARKER)), None)


READERS_OF_AVRO = [(codec, key) for codec in CODECS if (key := avro_key(codec)) is not None]


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize(("codec", "key"), READERS_OF_AVRO, ids=[codec.name for codec, _ in READERS_OF_AVRO])
def test_every_reader_of_avro_refuses_a_bomb_and_lists_it(codec: Any, key: bytes, name: str) -> None:
    record = LogRecord(offset=7, timestamp_ms=0, key=key, value=bomb(name)[1], headers=())

    with pytest.raises(codec.refusal):
        codec.read(record)

    assert codec.listed is None or {7} == set(codec.listed([record]))


def test_the_readers_of_avro_are_all_there() -> None:
    assert {"coordinator", "checkpoint", "placement", "placement-answer"} == {
        codec.name for codec, _ in READERS_OF_AVRO
    }


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_brings_a_bomb_for_a_schema_is_refused_before_a_row_is_decoded(name: str) -> None:
    out = io.BytesIO()
    row = {"recursive": {"next": None}, "zero-width": {"items": []}}[name]
    fastavro.writer(out, fastavro.parse_schema(BOMBS[name][0]), [row], metadata={"samzapy.format": FORMAT})

    with pytest.raises(CorruptRecordError, match="wanted a file that `samzapy stream export` wrote"):
        read_export(io.BytesIO(out.getvalue()), "f")


DETONATE = """
import io, json, sys
import fastavro
def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
schema = fastavro.parse_schema(json.loads(sys.argv[1]))
body = bytes.fromhex(sys.stdin.read())
before = peak()
found = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_the_bombs_are_bombs(name: str) -> None:
    """Bytes that crash the interpreter in fastavro, or make 100 MB of five bytes."""
    ran = subprocess.run(
        [sys.executable, "-c", DETONATE, json.dumps(BOMBS[name][0])],
        input=body_of(name).hex(),
        capture_output=True,
        text=True,
        check=False,
    )

    if name == "recursive":
        assert -signal.SIGSEGV == ran.returncode
    else:
        assert 0 == ran.returncode, ran.stderr
        assert int(ran.stdout) > 50
        assert len(body_of(name)) < 10


# --- a record of our own schemas that is as large as it may be, and made of the smallest parts there are ---

DECODE = """
import sys
from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import decode
from samzapy.stream.log import LogRecord
def peak():
    return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
value = bytes.fromhex(sys.stdin.read())
before = peak()
try:
    decode(LogRecord(offset=7, timestamp_ms=0, key=b"grant/a/1", value=value, headers=()), topic="t")
except CorruptRecordError as error:
    assert "t-0 at offset 7" in str(error), error
    print((peak() - before) // 1024)
"""


def test_the_widest_record_that_a_schema_of_ours_allows_is_refused_and_takes_a_bounded_amount_of_memory() -> None:
    """A start or a floor of two bytes is a dictionary in memory, 100 times as large."""
    schema = json.loads((ROOT / "schemas" / "grant.avsc").read_text())
    value = encode(GrantPut(grant=a_grant("a")))[1]
    assert value is not None
    datum: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), fastavro.parse_schema(schema), None)
    datum["starts"][0]["floors"] = [{"ssp_kb": "", "offset_next": 0}] * ((VALUE_BYTES_MAX - 200) // 2)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), datum)
    value = value[:10] + body.getvalue()
    assert VALUE_BYTES_MAX - 1_000 < len(value) <= VALUE_BYTES_MAX

    ran = subprocess.run(
        [sys.executable, "-c", DECODE],
        input=value.hex(),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == ran.returncode, ran.stderr
    assert int(ran.stdout) < WIDEST_MB_MAX
