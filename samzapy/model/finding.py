"""A problem that a person can repair: the wanted state, the actual one, a remedy.

Every finding has a code that scripts may look for; `CODES` has them all, and `docs/guides/doctor.md` explains each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """DATA: data is lost, or may be: nothing may start on it.

    DEGRADED: it works, but not as it should. NOTICE: it works as the operator chose, against advice.
    """

    DATA = "data"
    DEGRADED = "degraded"
    NOTICE = "notice"


CODES: Final[Mapping[str, Severity]] = {
    "topic-missing": Severity.DATA,
    "topic-identity": Severity.DATA,
    "topic-partition-count": Severity.DATA,
    "topic-cleanup-policy": Severity.DATA,
    "topic-timestamp-type": Severity.DATA,
    "topic-unclean-election": Severity.DATA,
    "topic-message-size": Severity.DATA,
    "topic-tombstone-retention": Severity.DATA,
    "topic-retention": Severity.DATA,
    "topic-replication": Severity.DATA,
    "topic-min-isr": Severity.DATA,
    "topic-few-replicas": Severity.DEGRADED,
    "topic-truncated": Severity.DATA,
    "partition-offline": Severity.DEGRADED,
    "record-unreadable": Severity.DATA,
    "record-foreign": Severity.DATA,
    "request-unreadable": Severity.DEGRADED,
    "request-refused": Severity.DEGRADED,
    "request-repeated": Severity.NOTICE,
    "stream-gap": Severity.DATA,
    "stream-two-writers": Severity.DATA,
    "stream-wrong-term": Severity.DATA,
    "stream-law": Severity.DATA,
    "stream-schema": Severity.DATA,
    "stream-config": Severity.DEGRADED,
    "transaction-hanging": Severity.DEGRADED,
    "container-ghost": Severity.DEGRADED,
    "container-unfenced": Severity.DEGRADED,
    "container-ended": Severity.NOTICE,
    "container-cut-off": Severity.DEGRADED,
    "processor-suspended": Severity.DEGRADED,
    "task-without-owner": Severity.DEGRADED,
    "leader-missing": Severity.DEGRADED,
    "leader-stale": Severity.DEGRADED,
    "leader-trouble": Severity.DEGRADED,
    "clock-skew": Severity.DEGRADED,
    "cluster-unreachable": Severity.DEGRADED,
    "coordinator-insecure": Severity.NOTICE,
    "input-unread": Severity.DEGRADED,
    "input-expansion-refused": Severity.DEGRADED,
    "input-gone": Severity.DEGRADED,
    "input-needed": Severity.DEGRADED,
    "input-partitioner": Severity.DATA,
    "input-keys": Severity.DEGRADED,
    "acl-missing": Severity.DEGRADED,
    "acl-denied": Severity.DEGRADED,
    "acl-excess": Severity.DATA,
}
"""Every code, and how much it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        subject: the topic, container or other object with the problem.
        found: the wanted and the actual state, as one sentence.
        remedy: the next step, a command if possible.
    """

    code: str
    subject: str
    found: str
    remedy: str

    def __post_init__(self) -> None:
        assert self.code in CODES, f"{self.code} is not listed"

    @property
    def severity(self) -> Severity:
        return CODES[self.code]

    def __str__(self) -> str:
        return f"{self.code}: {self.found}. {self.remedy}"


def finding_json(finding: Finding) -> Mapping[str, str]:
    """A finding as `/status` and `samzapy doctor -o json` show it.

    The names are an interface.
    """
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "subject": finding.subject,
        "found": finding.found,
        "remedy": finding.remedy,
    }


def finding_of_json(row: Mapping[str, object]) -> Finding | None:
    """The inverse of `finding_json`; None for a row of another form or code."""
    texts = {name: row.get(name) for name in ("code", "subject", "found", "remedy")}
    if not all(isinstance(text, str) for text in texts.values()) or texts["code"] not in CODES:
        return None
    return Finding(**{name: str(text) for name, text in texts.items()})


def insecure_coordinator(address: str) -> Finding:
    """The finding of a job that set `job.coordinator.insecure`."""
    return Finding(
        code="coordinator-insecure",
        subject="coordinator",
        found=f"wanted TLS and credentials on {address}, which other hosts reach, found job.coordinator.insecure=true",
        remedy="Set job.coordinator.tls.certificate, job.coordinator.tls.key and job.coordinator.secret "
        "(docs/guides/http-access.md)",
    )


def unreadable_request(topic: str, offset: int, reason: str) -> Finding:
    """A message on the placement topic that cannot be handled. It stops nothing."""
    return Finding(
        code="request-unreadable",
        subject=f"topic {topic}",
        found=f"{topic}-0 at offset {offset}: wanted a request, found what cannot be read: {reason}",
        remedy="Find out who wrote it; `samzapy container gc` removes it",
    )


def refused_request(topic: str, offset: int, reason: str) -> Finding:
    """A request that was refused for its signature. It stops nothing."""
    return Finding(
        code="request-refused",
        subject=f"topic {topic}",
        found=f"{topic}-0 at offset {offset}: {reason}",
        remedy="Find out which program wrote it; nothing was done for it",
    )


def repeated_request(topic: str, offset: int, uuid: str) -> Finding:
    """A request whose uuid was read before. It stops nothing."""
    return Finding(
        code="request-repeated",
        subject=f"topic {topic}",
        found=f"{topic}-0 at offset {offset}: wanted a new uuid, found request {uuid}, which was read before",
        remedy="Find out which program wrote it again; nothing was done for the copy",
    )


def losing_data(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those of them that nothing may start on."""
    return tuple(finding for finding in findings if finding.severity is Severity.DATA)
