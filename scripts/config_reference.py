"""Writes `docs/configuration.md` out of `samzapy.config.KEYS`; a unit test holds the two together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from samzapy.config import CLIENT_PROPERTIES_REFUSED, KEYS, REQUIRED, ConfigKey

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

_HEAD = """# Configuration

Written by `scripts/config_reference` from `samzapy.config.KEYS`; do not edit it by hand.

A job's settings are Samza's dotted keys in a Java properties file:
the file of the same name beside the job file (`flight_delays.py` reads `flight_delays.properties`),
or another one given with `--config FILE`.
Each of these wins over the ones before it:

1. the default,
2. the properties file,
3. the environment, for keys without a `<name>` in them: `SAMZAPY_SET_JOB_NAME` sets `job.name`,
4. `--set key=value` on the command line.

A key that is not in the tables below is refused, and the message names the nearest one that is.
Keys that begin with `spark.` are spark-submit's: pass them with `--conf`.
A few of those are refused too, because order or exactly-once rests on them; the message says which and why.
Times are in milliseconds, sizes in bytes, and `required` means that there is no default.
"""

_GROUPS = {
    "job": "The job and its coordinator",
    "task": "Tasks, batches and transactions",
    "systems": "Clusters and streams",
    "stores": "Stores",
    "local": "This host",
    "locationid": "Where it is",
    "processor": "This process",
}
_KINDS = {
    "ms": "milliseconds",
    "bytes": "bytes",
    "count": "number",
    "list": "list, comma separated",
    "factory": "`module:Class`",
    "id": "letters, digits, `_`",
    "name": "letters, digits, `.`, `_`, `-`",
}


def page() -> str:
    """The whole page."""
    unknown = {_group(key) for key in KEYS} - _GROUPS.keys()
    assert not unknown, f"keys of {', '.join(sorted(unknown))} have no heading here"
    return "\n".join((_HEAD, *_tables()))


def _tables() -> Iterator[str]:
    for group, heading in _GROUPS.items():
        yield f"## {heading}\n\n| key | default | values | meaning |\n|---|---|---|---|"
        yield from (_row(key) for key in KEYS if _group(key) == group)
        yield _refused() if group == "systems" else ""


def _group(key: ConfigKey) -> str:
    return key.name.partition(".")[0]


def _row(key: ConfigKey) -> str:
    default = "required" if key.default is REQUIRED else "" if key.default in (None, "") else f"`{key.default}`"
    values = ", ".join(f"`{choice}`" for choice in key.choices) or _KINDS.get(key.kind, "text")
    meaning = f"{key.meaning} May differ between the processes of a job." if key.of_process else key.meaning
    cells = (f"`{key.name}`", default, values, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _refused() -> str:
    names = ", ".join(f"`{name}`" for name in CLIENT_PROPERTIES_REFUSED)
    return (
        "\nRefused under `systems.<system>.client.`, because samzapy sets them itself and exactly-once rests on them:\n"
        f"{names}.\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")
