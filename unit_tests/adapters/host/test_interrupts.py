from __future__ import annotations

import signal

import pytest

from samzapy.adapters.host.interrupts import Interrupts


def test_a_signal_is_distinguished_from_an_error_of_the_same_class() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        interrupts = Interrupts()
        interrupts.install()

        with pytest.raises(KeyboardInterrupt):
            raise KeyboardInterrupt
        assert not interrupts.was_interrupted

        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.was_interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_is_remembered_after_another_handler_was_installed() -> None:
    """PySpark installs one before each task of Spark."""
    before = signal.getsignal(signal.SIGINT)
    try:
        interrupts = Interrupts()
        interrupts.install()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupts.install()

        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.was_interrupted
    finally:
        signal.signal(signal.SIGINT, before)
