"""The entries of the store of timers.

The entry of a timer belongs to a message key, as every entry of a keyed store (`stream.changelog`). Its sub-key is the
timer's name, a zero byte, and the tag. Its value is a byte of flags, the domain, the moment (milliseconds since 1970,
8 bytes), and the number of failed attempts (2 bytes).

Bytes have the order of moments, but for those before 1970, which come last. No timer of a task has such a moment; an
entry of an event time before 1970 expires at one.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final, Protocol

STORE: Final = "_timers"
"""The name of the store."""
MOMENT_MAX: Final = 2**62
_LEAST_MS: Final = -(2**63)
_LAST_MS: Final = 2**63 - 1
_VALUE: Final = struct.Struct(">BBqH")
VALUE_BYTES: Final = _VALUE.size
_DUE: Final = struct.Struct(">Bq")
DUE_BYTES: Final = _DUE.size
"""The length of `due_prefix`."""


class Entry(Protocol):
    """The store of a state or of timers, for the key in hand.

    A map, a list and the store of timers have an entry for each sub-key.
    """

    def get(self, name: Any = "") -> Any: ...
    def put(self, value: Any, name: Any = "") -> None: ...
    def delete(self, name: Any = "") -> None: ...


class Timers(Entry, Protocol):
    """The store of timers, for the key in hand."""

    def replace(self, value: bytes, name: bytes) -> None:
        """Set an entry; nothing is written if it has that value."""
        ...


class Domain(IntEnum):
    """The clock that a timer goes by."""

    PROCESSING = 0
    EVENT = 1
    EXPIRY = 2
    """Event time, too: an entry expires by it. Nothing of the task is called, so no message waits for it."""


def sub_key_of(name: str, tag: str) -> bytes:
    """The sub-key of a timer. A name has no zero character."""
    return b"%b\x00%b" % (name.encode(), tag.encode())


def name_and_tag(sub_key: bytes) -> tuple[str, str]:
    """The inverse of `sub_key_of`."""
    name, _, tag = sub_key.partition(b"\x00")
    return name.decode(), tag.decode()


EXPIRING_SUB_KEY_BYTES_MAX: Final = 150
"""The most bytes of a sub-key whose entry can expire; the name of its store stands in front."""
_EXPIRY: Final = b"ttl:"
"""In front of the name of a store. No name of a timer has a colon."""


def expiry_of(store: str, sub_key: bytes) -> bytes:
    """The sub-key of the timer by which an entry of a store expires."""
    return b"%b%b\x00%b" % (_EXPIRY, store.encode(), sub_key)


def expiring_entry(sub_key: bytes) -> tuple[str, bytes] | None:
    """Store and sub-key of the entry that expires by a timer.

    None for a timer that a task has set.
    """
    if not sub_key.startswith(_EXPIRY):
        return None
    store, _, entry = sub_key[len(_EXPIRY) :].partition(b"\x00")
    return store.decode(), entry


def timer_value(domain: int, moment_ms: int) -> bytes:
    """The value of a timer's entry."""
    return _VALUE.pack(0, domain, moment_ms, 0)


def set_moment(timers: Timers, sub_key: bytes, domain: Domain, time_ms: int, step_ms: int) -> None:
    """Set a timer to a moment, rounded up to a multiple of `step_ms`.

    Nothing is written if it is set to that moment already.
    """
    timers.replace(timer_value(domain, -(-time_ms // step_ms) * step_ms), sub_key)


def put_off(timers: Timers, sub_key: bytes, domain: Domain, time_ms: int, step_ms: int) -> None:
    """As `set_moment`, but a later moment of the same domain stays."""
    raw = timers.get(sub_key)
    if raw is None or domain_of(raw) != domain or moment_of(raw) < time_ms:
        set_moment(timers, sub_key, domain, time_ms, step_ms)


def clear_moment(timers: Entry, sub_key: bytes) -> None:
    """Remove a timer; nothing is written if it is not set."""
    if timers.get(sub_key) is not None:
        timers.delete(sub_key)


def moment_of(value: bytes) -> int:
    """The moment of a timer's entry. Raises ValueError for another value."""
    if len(value) != VALUE_BYTES:
        raise ValueError(f"wanted {VALUE_BYTES} bytes of a timer, found {len(value)}")
    return int(_VALUE.unpack(value)[2])


def domain_of(value: bytes) -> Domain:
    """The domain of a timer's entry."""
    return Domain(value[1])


def due_prefix(value: bytes) -> bytes:
    """Domain and moment of an entry, in the order in which timers are due."""
    return value[1 : 1 + DUE_BYTES]


def due_before(domain: int, until_ms: int | None) -> tuple[bytes, bytes]:
    """The least `due_prefix` of a domain, and the one behind those up to `until_ms`.

    Bytes have moments before 1970 behind all others, so a moment is either among those before 1970, or from there on.
    """
    last = _DUE.pack(domain, _LAST_MS if until_ms is None else until_ms)
    behind = (int.from_bytes(last, "big") + 1).to_bytes(DUE_BYTES, "big")
    return _DUE.pack(domain, _LEAST_MS if until_ms is not None and until_ms < 0 else 0), behind
