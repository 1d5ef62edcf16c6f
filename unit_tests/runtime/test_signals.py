"""Signals ask for the drain, wherever the main thread is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyspark.java_gateway
import pytest

from samzapy.runtime.signals import DrainRequest, SignalThread, install_handlers

NUMBERS = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def a_context() -> Any:
    """The SparkContext of a JVM whose handlers do nothing."""
    java_signal = SimpleNamespace(handle=lambda *_: None)
    jvm = SimpleNamespace(sun=SimpleNamespace(misc=SimpleNamespace(Signal=_Callable(java_signal))))
    return SimpleNamespace(_gateway=object(), _jvm=jvm)


class _Callable:
    def __init__(self, part: SimpleNamespace) -> None:
        self.handle = part.handle

    def __call__(self, name: str) -> str:
        return name


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_to_python_asks_for_the_drain(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    request = DrainRequest()
    monkeypatch.setattr(pyspark.java_gateway, "ensure_callback_server_started", lambda _: None)

    install_handlers(a_context(), request)
    signal.raise_signal(number)

    assert request.wait(10.0)


def test_a_handler_does_not_wait_for_the_lock_of_the_event_that_the_main_thread_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The main thread holds that lock for moments of each wait.

    A signal may come in one of them.
    """
    request = DrainRequest()
    monkeypatch.setattr(pyspark.java_gateway, "ensure_callback_server_started", lambda _: None)
    install_handlers(a_context(), request)
    # Not in the main thread: a handler that waits fails the test, and does not hang it.
    handler = threading.Thread(target=cast(Any, signal.getsignal(signal.SIGTERM)), args=(signal.SIGTERM, None))

    with request._asked._cond:  # type: ignore[attr-defined]
        handler.start()
        handler.join(10.0)
        is_done = not handler.is_alive()

    assert is_done
    assert request.wait(10.0)


def test_each_signal_is_passed_on_until_the_former_handlers_are_back() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []
    are_two = threading.Event()

    def act(number: signal.Signals) -> None:
        seen.append(number)
        if len(seen) == 2:
            are_two.set()

    signals = SignalThread([signal.SIGTERM], act)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert are_two.wait(10.0)

    signals.close()
    assert signal.getsignal(signal.SIGTERM) is before
    assert [signal.SIGTERM] * 2 == seen
