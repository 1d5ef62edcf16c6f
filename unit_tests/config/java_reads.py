"""The results of `java.util.Properties`, of Java itself or as recorded.

Run this file to record `properties_corpus.json` again (`python -m unit_tests.config.java_reads`); it needs a JDK.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

Read = list[tuple[str, str]] | None
"""Keys and values in their order; None for a text that Java refuses."""

CORPUS = Path(__file__).with_name("properties_corpus.json")
_PROGRAM = Path(__file__).with_name("ReadProperties.java")
_SEED = 13
_PIECES = (
    *"ab=: \t\f\\\n\r#!é😀",
    "\\\n", "\\\r\n", "\r\n", "\\\\", "\\\\\\\n", "\\:", "\\=", "\\ ", "\\#", "\\t", "\\n", "\\r", "\\f", "\\u00e9",
    "\\u00E9", "\\ud83d\\ude00", "\\ud83d", "\\u00g", "\\u", "\\U0041", "\\u000a", "\\d", "\\\t", "\x85", "\u2028",
    "\x1c", "\x0b", "\x00", "key", "value",
)  # fmt: skip
_BY_HAND = (
    "#Tue Nov 24 10:00:00 UTC 2026\njob.name=esc\ntask.inputs=kafka.~orders-\\\\d+\n"
    "systems.kafka.bootstrap.servers=localhost\\:19092\nsystems.kafka.client.client.id=caf\\u00e9\n",
    "a=1\\\\\\\n2\n",
    "a=x\u2028y\n",
    "a=x\x85y\n",
    "a\\:b=1\n",
    "a = 1 \n",
    "a=1\\ \n",
    "\\\n#a=1\n",
    "a=1\\\n\n b=2\n",
    "\ufeffa=1\n",
    "a:=:b\n",
    "a  :  = b\n",
    "=1\n",
    "\\",
    "a=1\\",
)


def texts(count: int, seed: int = _SEED) -> list[str]:
    """Texts of characters that have a meaning in the format; the same for each seed."""
    chance = random.Random(seed)
    return [*_BY_HAND, *("".join(chance.choices(_PIECES, k=chance.randint(1, 12))) for _ in range(count))]


def has_compiler() -> bool:
    """Whether `java` can run a source file: a JDK can, a JRE alone cannot."""
    try:
        modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return "jdk.compiler@" in modules


def read_by_java(given: Sequence[str]) -> list[Read]:
    lines = "".join(base64.b64encode(text.encode("utf-16-le")).decode() + "\n" for text in given)
    output = subprocess.run(["java", _PROGRAM], input=lines, capture_output=True, text=True, check=True).stdout
    return [_read(line) for line in output.splitlines()]


def _read(line: str) -> Read:
    status, _, pairs = line.partition(" ")
    if status == "refused":
        return None
    return [(_decoded(pair.partition("=")[0]), _decoded(pair.partition("=")[2])) for pair in pairs.split()]


def _decoded(encoded: str) -> str:
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4)).decode("utf-16-le", "surrogatepass")


if __name__ == "__main__":
    given = texts(400)
    recorded = [{"text": text, "read": read} for text, read in zip(given, read_by_java(given), strict=True)]
    CORPUS.write_text(json.dumps(recorded, indent=0) + "\n")
    print(f"recorded {len(recorded)} texts")
