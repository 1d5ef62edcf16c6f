"""Mutated records against one reader, in a process of its own that may crash.

    python -m unit_tests.hostile.assault coordinator 100000

prints the figures as JSON, a line for each of the names before the number. A reader joins by a `Codec` in
`unit_tests.hostile.codecs`; the test and `fuzz` take it from there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from samzapy.stream.log import LogRecord
from unit_tests.hostile.codec import Codec
from unit_tests.hostile.codecs import CODECS, TOPIC

BLOCK = 1_000
MESSAGE_LENGTH_MAX = 4_000


@dataclass(slots=True)
class Figures:
    """The figures. Megabytes are those by which the peak of resident memory grew."""

    codec: str
    records: int = 0
    refused: int = 0
    listed: int = 0
    slowest_ms: float = 0.0
    grew_mb: float = 0.0
    seconds: float = 0.0


def assault(codec: Codec, count: int) -> Figures:
    """Give `codec` so many mutated records; raises at an error that is no refusal."""
    figures, chance = Figures(codec=codec.name), Random(codec.name)
    _block(
        codec, 0, BLOCK, chance, Figures(codec=codec.name)
    )  # Modules that are imported and cached once are no growth.
    before_kb, began_s = _peak_kb(), time.monotonic()
    for first in range(0, count, BLOCK):
        _block(codec, first, min(BLOCK, count - first), chance, figures)
    figures.seconds = round(time.monotonic() - began_s, 2)
    figures.grew_mb = round((_peak_kb() - before_kb) / 1024, 1)
    return figures


def _block(codec: Codec, first: int, count: int, chance: Random, figures: Figures) -> None:
    records = [_mutant(codec, offset, chance) for offset in range(first, first + count)]
    refused = {record.offset for record in records if is_refused(codec, record, figures)}
    if codec.listed is not None:
        listed = set(codec.listed(records))
        assert listed == refused, f"{codec.name}: refused and not listed, or listed and read: {listed ^ refused}"
        figures.listed += len(listed)
    figures.records += len(records)
    figures.refused += len(refused)


def _mutant(codec: Codec, offset: int, chance: Random) -> LogRecord:
    key, value = chance.choice(codec.originals)
    of_key = codec.mutate_value is None or (codec.mutate_key is not None and chance.random() < 0.2)
    if of_key and codec.mutate_key is not None:
        key = codec.mutate_key(key, chance)
    elif codec.mutate_value is not None and value is not None:
        value = codec.mutate_value(value, chance)
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=value, headers=_headers(chance))


def _headers(chance: Random) -> tuple[tuple[str, bytes | None], ...]:
    """Evidence that must not be trusted."""
    return tuple(
        (name, chance.choice([None, b"", b"7", b"\xff", b"9" * 5_000, "\u00b2".encode()]))
        for name in chance.sample(["term", "seq", "event", "cause", "actor"], chance.randrange(6))
    )


def is_refused(codec: Codec, record: LogRecord, figures: Figures) -> bool:
    """Give a record to its reader; raises every error but the reader's own refusal."""
    began_s = time.process_time()
    try:
        codec.read(record)
    except codec.refusal as error:
        message = str(error)
        assert len(message) <= MESSAGE_LENGTH_MAX, f"{codec.name}: a message of {len(message)} letters"
        if codec.name in ("coordinator", "checkpoint"):
            assert f"{TOPIC}-0 at offset {record.offset}" in message, message
        return True
    except BaseException:
        sys.stderr.write(f"{codec.name}: key {record.key!r:.2000}, value {record.value!r:.2000}\n")
        raise
    finally:
        figures.slowest_ms = max(figures.slowest_ms, round((time.process_time() - began_s) * 1000, 1))
    return False


def _peak_kb() -> int:
    """Of this process alone: getrusage begins with the figures of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(arguments: Sequence[str]) -> None:
    *names, count = arguments
    for name in names:
        figures = assault(codec_of(name), int(count))
        shown: dict[str, Any] = {field: getattr(figures, field) for field in Figures.__slots__}
        sys.stdout.write(json.dumps(shown) + "\n")


def codec_of(name: str) -> Codec:
    return next(codec for codec in CODECS if codec.name == name)


if __name__ == "__main__":
    main(sys.argv[1:])
