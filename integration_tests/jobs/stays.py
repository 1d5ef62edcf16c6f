"""A program that a cluster runs in place of a container, and that only waits."""

from __future__ import annotations

import signal

from samzapy.runtime.signals import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    signal.pause()
