"""The files of a development broker's directory: settings, log, pid file, data.

`server.properties` and `log4j2.properties` are written at each start. `broker.log` has the output of the latest start,
`broker.previous.log` that of the one before. `last-start.json` outlives a shutdown, and `broker.json` does not.
"""

from __future__ import annotations

import base64
import fcntl
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.errors import ConfigError
from samzapy.testing.ports import LOOPBACK, free_port

BROKER_DEFAULTS: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    # Compaction, retention and the end of abandoned transactions in a test's time, not in 15 s to 5 min.
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # A quarter of the small heap would go to the cleaner's default of 128 MiB; this does 600,000 keys a pass.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}

_LOGGING = """status=warn
shutdownHook=disable
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p [%t] %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.out.ref=out
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The place of a node in its cluster.

    `controller_ports` has the controller port of each node by node id. The ports outlive a restart, because the other
    nodes know them; an empty mapping is a cluster of one node, which picks a port at each start.
    """

    node_id: int = 1
    cluster_id: str = ""
    controller_ports: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """The content of the pid file.

    It has the broker's process, and the process that started it.
    """

    process: ProcessIdentity
    owner: ProcessIdentity | None
    port_number: int
    overrides: Mapping[str, str]

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> BrokerRecord | None:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                process=ProcessIdentity(**fields["process"]),
                owner=ProcessIdentity(**fields["owner"]) if fields["owner"] else None,
                port_number=fields["port_number"],
                overrides=fields["overrides"],
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} is not a pid file of ours ({error!r}). Make sure that no broker runs on this"
                " directory, then delete the file."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStart:
    """The port and the settings of the latest start, for a restart."""

    port_number: int
    overrides: Mapping[str, str]

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> LastStart | None:
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                port_number=int(fields["port_number"]),
                overrides={str(name): str(value) for name, value in fields["overrides"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"wanted the port and settings of a development broker in {path}, found another content ({error!r}); "
                "delete the file, and start the broker with samzapy dev up"
            ) from error


class BrokerFiles:
    """The files in `directory`.

    Args:
        advertised_port: the port that the broker sends clients to; 0: its own.
        secured: the protocol of a second listener; empty: there is none.
    """

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str],
        membership: Membership,
        *,
        advertised_port: int = 0,
        secured: str = "",
    ) -> None:
        ours = sorted(overrides.keys() & _addresses(Path(), 0, 0).keys())
        if ours:
            raise ConfigError(
                f"{', '.join(ours)} cannot be set: the broker's addresses, roles and directory follow from its"
                " port and directory. Choose those instead."
            )
        self.directory = directory
        self.overrides = overrides
        self.membership = membership
        self.secured_port = 0
        self._advertised_port = advertised_port
        self._secured = secured

    @property
    def log_path(self) -> Path:
        """The output of the latest start."""
        return self.directory / "broker.log"

    @property
    def pid_path(self) -> Path:
        """The pid file."""
        return self.directory / "broker.json"

    @property
    def _last_start_path(self) -> Path:
        return self.directory / "last-start.json"

    @property
    def settings_path(self) -> Path:
        """Kafka's properties file."""
        return self.directory / "server.properties"

    @property
    def logging_path(self) -> Path:
        """Log4j's properties file."""
        return self.directory / "log4j2.properties"

    @property
    def is_formatted(self) -> bool:
        """Whether the data directory has a cluster id."""
        return (self.directory / "data" / "meta.properties").exists()

    def record(self) -> BrokerRecord | None:
        """The content of the pid file; None without one."""
        return BrokerRecord.read(self.pid_path)

    def last_start(self) -> LastStart | None:
        """The latest start; None where no broker has ever served."""
        record = self.record()
        if record is not None:
            return LastStart(port_number=record.port_number, overrides=record.overrides)
        return LastStart.read(self._last_start_path)

    def keep_start(self, port_number: int) -> None:
        """Keep the port and the settings of a start for a restart."""
        LastStart(port_number=port_number, overrides=self.overrides).write(self._last_start_path)

    def write_settings(self, port_number: int, controller_port: int) -> None:
        """Write the properties files for these ports."""
        addresses = _addresses(
            self.directory, port_number, controller_port, self._advertised_port, membership=self.membership
        )
        if self._secured:
            self.secured_port = self.secured_port or free_port()
            addresses["listener.security.protocol.map"] += f",SECURED:{self._secured}"
            for name in ("listeners", "advertised.listeners"):
                addresses[name] += f",SECURED://{LOOPBACK}:{self.secured_port}"
        settings = {**BROKER_DEFAULTS, **self.overrides, **addresses}
        lines = [f"{key}={value}\n" for key, value in sorted(settings.items())]
        self.settings_path.write_text(_for_java("".join(lines)), encoding="ascii")
        self.logging_path.write_text(_LOGGING, encoding="utf-8")

    def keep_log(self) -> None:
        """Move the log of the latest start aside."""
        if self.log_path.exists():
            self.log_path.replace(self.directory / "broker.previous.log")

    def log_text(self) -> str:
        """The output of the latest start."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")


def taken_port(log: str) -> int | None:
    """The port that a broker's log says was in use, or None."""
    match = re.search(r"failed to bind to \S+?:(\d+): Address already in use", log)
    return int(match.group(1)) if match else None


def reason_in_log(log: str) -> str:
    """Why a broker ended, in its own words.

    This is the innermost cause of its last error, else its last lines.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.search(r"\b(ERROR|FATAL)\b|^Exception in", line)]
    if not errors:
        return " | ".join(lines[-5:]) or "it printed nothing"
    error_lines = lines[errors[-1] :]
    causes = [line.removeprefix("Caused by: ") for line in error_lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    thrown = next((line for line in error_lines[1:2] if not line.startswith("at ")), error_lines[0])
    return thrown


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Replace the file as a whole, so that no reader finds half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


@contextmanager
def one_at_a_time(directory: Path) -> Iterator[None]:
    """One start or stop at a time per directory.

    The kernel frees the lock of a process that died.
    """
    with (directory / "start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def new_cluster_id() -> str:
    """A cluster id in Kafka's form of a random uuid.

    It is base64 without padding, and without a dash at its start.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")
        if not text.startswith("-"):
            return text


def _addresses(
    directory: Path,
    port_number: int,
    controller_port: int,
    advertised_port: int = 0,
    *,
    membership: Membership | None = None,
) -> dict[str, str]:
    membership = membership or Membership()
    controller_ports = membership.controller_ports or {membership.node_id: controller_port}
    voters = ",".join(f"{node_id}@{LOOPBACK}:{port}" for node_id, port in sorted(controller_ports.items()))
    return {
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{advertised_port or port_number}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port_number},CONTROLLER://{LOOPBACK}:{controller_port}",
        "log.dirs": str(directory / "data"),
        "node.id": str(membership.node_id),
        "process.roles": "broker,controller",
    }


def _for_java(text: str) -> str:
    """The text in ASCII with escapes: Java reads a properties file as Latin-1."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)
