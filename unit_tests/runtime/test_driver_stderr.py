from __future__ import annotations

import io
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from samzapy.runtime.driver_stderr import ForwardedStderr, real_stderr


def test_written_text_has_arrived_after_a_flush() -> None:
    there: list[str] = []
    stream = ForwardedStderr(lambda: there.append, io.StringIO())

    print("first", file=stream, flush=True)
    handler = logging.StreamHandler(stream)
    handler.emit(logging.makeLogRecord({"msg": "second"}))

    assert "first\nsecond\n" == "".join(there)


def test_text_that_cannot_be_forwarded_is_written_to_the_own_stderr() -> None:
    def refuse(text: str) -> None:
        raise ConnectionError("the JVM is gone")

    def connect() -> Callable[[str], None]:
        return refuse

    own = io.StringIO()
    stream = ForwardedStderr(connect, own)

    stream.write("first\n")
    stream.write("second\n")
    stream.flush()

    assert "first\nsecond\n" == own.getvalue()


def test_a_flush_returns_after_the_rescued_text_is_written() -> None:
    """A process may end at once then."""
    is_flushed = threading.Event()

    class SlowStderr(io.StringIO):
        def write(self, text: str) -> int:
            is_flushed.wait(0.5)
            return super().write(text)

    def connect() -> Callable[[str], None]:
        raise ConnectionError("the JVM is gone")

    own = SlowStderr()
    stream = ForwardedStderr(connect, own, connect_wait_s=60.0)
    stream.write("the last words")

    stream.flush()

    text = own.getvalue()
    is_flushed.set()
    assert "the last words" == text


def test_text_without_a_connection_is_written_to_the_own_stderr() -> None:
    never = threading.Event()

    def connect() -> Callable[[str], None]:
        never.wait()
        raise AssertionError("nobody waits for this")

    own = io.StringIO()
    stream = ForwardedStderr(connect, own, connect_wait_s=0.01)

    print("the last words", file=stream, flush=True)
    print("and one more", file=stream, flush=True)

    assert "the last words\nand one more\n" == own.getvalue()


def test_a_stderr_of_its_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert real_stderr({}) is sys.stderr
    # Here it is not the JVM of spark-submit that holds the other end.
    assert real_stderr({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "s"}) is sys.stderr


def test_the_name_of_the_parent_may_be_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel cuts a name after 15 bytes, also within a letter."""
    name = Path(f"/proc/{os.getpid()}/comm")
    before = name.read_bytes()
    monkeypatch.setattr(os, "getppid", os.getpid)
    name.write_bytes(b"caf\xe9")
    try:
        assert real_stderr({"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "s"}) is sys.stderr
    finally:
        name.write_bytes(before.rstrip(b"\n"))
