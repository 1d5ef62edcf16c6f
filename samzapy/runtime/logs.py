"""The log of a process on stderr, as text or as JSON.

Text is for people. A JSON object per line is for programs:

```json
{"time": "2026-11-27T10:00:00.123Z", "level": "INFO", "logger": "samzapy.container.service", "message": "…",
 "job": "flights-1", "processor": "0", "execution": "0-8f3a", "run": "1767225600000-8f3a1b2c", "generation": 3}
```

A container has `run` and `generation` once it has read them.

A record about one task has a field `task` too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import click

from samzapy.errors import ConfigError

FORMAT_VARIABLE: Final = "SAMZAPY_LOG_FORMAT"
"""`text` or `json`; child processes inherit it."""
FORMATS: Final = ("text", "json")
_FIELDS: Final = ("job", "processor", "execution", "run", "generation", "task")
COMMAND_FORMAT: Final = "samzapy: %(message)s"
"""Of a command's log, as text."""
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_context: dict[str, str | int] = {}


def log_to_stderr(
    environment: Mapping[str, str], text_format: str = _TEXT, level: int = logging.WARNING, *, force: bool = False
) -> None:
    """Log to stderr, unless the job has set up logging already.

    `force`: replace what was set up before.

    Raises:
        ConfigError: `SAMZAPY_LOG_FORMAT` has another value.
    """
    name = environment.get(FORMAT_VARIABLE, "") or "text"
    if name not in FORMATS:
        raise ConfigError(f"{FORMAT_VARIABLE}: wanted {' or '.join(FORMATS)}, found {name!r}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if name == "json" else logging.Formatter(text_format))
    logging.basicConfig(handlers=[handler], level=level, force=force)


def identify(**fields: str | int) -> None:
    """Set fields of every later record of this process, by the names of `_FIELDS`."""
    assert fields.keys() <= set(_FIELDS), fields
    _context.update(fields)


log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    help=f"Choose the format of the log, for containers too [default: {FORMAT_VARIABLE}, or text].",
)


def choose_format(name: str | None, text_format: str = COMMAND_FORMAT, level: int = logging.INFO) -> None:
    """Use the format of `--log-format` in this process, and in its child processes."""
    if name is not None:
        os.environ[FORMAT_VARIABLE] = name
        log_to_stderr(os.environ, text_format, level, force=True)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        own = {name: value for name in _FIELDS if (value := getattr(record, name, None)) is not None}
        fields: dict[str, object] = {
            "time": _time_text(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_context,
            **own,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def _time_text(created_s: float) -> str:
    return datetime.fromtimestamp(created_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
