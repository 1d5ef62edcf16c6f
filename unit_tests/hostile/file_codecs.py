"""Readers of files, of lines that are typed in, and of answers over HTTP."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import msgspec

from samzapy.adapters.lmdb.file_size import check_whole
from samzapy.adapters.spark.ends_file import EndsContent
from samzapy.adapters.spark.scratch_json import read_json
from samzapy.adapters.spark.slots import SlotContent
from samzapy.adapters.spark.so_far_file import SoFarFile
from samzapy.adapters.spark.standalone_launcher import parse_page
from samzapy.adapters.spark.submission import SUBMIT_CLASS
from samzapy.cli.dev.message_lines import json_line, messages_of_json, messages_of_text
from samzapy.cli.job.planning import _read_plan
from samzapy.config import in_force, merge, parse_config, properties_text, read_properties
from samzapy.errors import ConfigError, RejectedError, SamzapyError
from samzapy.plan.job_model_json import job_model_json, job_model_of_json
from samzapy.stream.log import LogRecord
from unit_tests.hostile.codec import Codec, Mutate
from unit_tests.hostile.mutations import mutated_binary, mutated_json, mutated_properties

T = TypeVar("T")
_PATH = Path("f")
_PLAN = Path(__file__).parents[1] / "plan" / "golden" / "job_model.json"
_PROPERTIES = b"""# a comment
job.name = flights
task.inputs=kafka.a,\\
  kafka.b
systems.kafka.bootstrap.servers: localhost:9092
systems.kafka.client.sasl.password=\\u00e9${env:PW}
stores.seen.msg.serde=json
stores.seen.ttl.ms=5000
local.store.dir=/data
task.window.ms=1000
job.container.lost.ms 30000
"""
_PAGE: dict[str, Any] = {
    "status": "ALIVE",
    "workers": [
        {
            "id": "worker-1",
            "host": "127.0.0.2",
            "webuiaddress": "http://127.0.0.2:8081",
            "state": "ALIVE",
            "coresfree": 4,
            "memoryfree": 1024,
            "resources": {"host_w2": {"addresses": ["0"]}},
            "resourcesfree": {"host_w2": {"addresses": ["0"]}},
        }
    ],
    "activedrivers": [{"id": "driver-1", "state": "RUNNING", "mainclass": SUBMIT_CLASS, "worker": "worker-1"}],
    "completeddrivers": [],
}


class NoPageError(Exception):
    """The launcher takes it for another page, and waits for the right one."""


def _codec(
    name: str,
    originals: Sequence[bytes],
    mutate: Mutate,
    read: Callable[[bytes], object],
    refusal: type[Exception],
) -> Codec:
    return Codec(
        name=name,
        originals=[(b"", original) for original in originals],
        mutate_key=None,
        mutate_value=mutate,
        read=lambda record: read(_value(record)),
        refusal=refusal,
        listed=None,
    )


def _value(record: LogRecord) -> bytes:
    assert record.value is not None
    return record.value


def _read_properties(raw: bytes) -> None:
    file = read_properties(properties_text(raw, "f"), "f")
    parse_config(in_force(merge(file=file, environment={"PW": "x"}, overrides=())))


def _read_lines(raw: bytes) -> None:
    """Lines that `samzapy dev produce` reads and `samzapy dev consume` shows again."""
    text = raw.decode(errors="surrogateescape")
    lines = text.split("\n")
    for message in messages_of_text(lines):
        json_line(message).encode()
    for message in messages_of_json(lines):
        json_line(message).encode()


def _read_page(raw: bytes) -> None:
    if parse_page(raw) is None:
        raise NoPageError


def _read_plan_file(raw: bytes) -> None:
    """As `samzapy job plan --previous` reads it."""
    model = _in_file(raw, _read_plan)
    assert model == job_model_of_json(job_model_json(model))


def _of_scratch(kind: Any) -> Callable[[bytes], object]:
    return lambda raw: read_json(raw, kind, _PATH)


def _an_environment() -> bytes:
    """The data file of LMDB, whose first pages have its length."""
    with tempfile.TemporaryDirectory() as directory:
        with lmdb.open(directory) as environment, environment.begin(write=True) as transaction:
            transaction.put(b"key", b"value")
        return Path(directory, "data.mdb").read_bytes()


def _in_file(raw: bytes, read: Callable[[Path], T]) -> T:
    """The result of a reader of files, of a file in memory."""
    descriptor = os.memfd_create("hostile")
    try:
        os.write(descriptor, raw)
        return read(Path(f"/proc/self/fd/{descriptor}"))
    finally:
        os.close(descriptor)


FILES = (
    _codec("properties", [_PROPERTIES], mutated_properties, _read_properties, ConfigError),
    _codec(
        "lines-of-messages",
        [b'{"key": "a", "value": {"delay": 4.5}, "headers": [["h", {"base64": "AA=="}]], "partition": 0}'],
        mutated_json,
        _read_lines,
        RejectedError,
    ),
    _codec("plan-file", [_PLAN.read_bytes()], mutated_json, _read_plan_file, ConfigError),
    _codec("page-of-a-master", [json.dumps(_PAGE).encode()], mutated_json, _read_page, NoPageError),
    _codec(
        "slot-file",
        [b'{"query": 3, "instance": 7, "state": "open"}'.ljust(128)],
        mutated_json,
        _of_scratch(SlotContent),
        SamzapyError,
    ),
    _codec(
        "ends-file",
        [msgspec.json.encode(EndsContent(1, 2, [("t", 0, 9)], {"kafka.t.0:0/1": 5}))],
        mutated_json,
        _of_scratch(EndsContent),
        SamzapyError,
    ),
    _codec("tail-positions", [b"[1, 2, 3]"], mutated_json, _of_scratch(list[int]), SamzapyError),
    _codec(
        "tail-reports",
        [b'{"reports": [{"records_in": 3}], "readTo": [[0, 5]]}', b'{"ended": "why"}'],
        mutated_json,
        _of_scratch(dict[str, Any]),
        SamzapyError,
    ),
    _codec(
        "costs-so-far",
        [b'{"query": 3, "noted": [{"route": 0, "elapsed_ns": 9, "stats": {"keysSampled": 1, "keys": {"k": 1}}}]}'],
        mutated_json,
        lambda raw: SoFarFile(Path("slot-0")).decoded(raw, 3),
        SamzapyError,
    ),
    _codec(
        "data-file-of-lmdb", [_an_environment()], mutated_binary, lambda raw: _in_file(raw, check_whole), ValueError
    ),
)
