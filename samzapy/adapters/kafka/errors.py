"""librdkafka's errors as ours: one table and one function.

The table gives each code the class of `samzapy.errors` that says how to react. A test walks the codes of the installed
librdkafka, so a code of a new release that the table lacks fails there, and not in production.

A wrong password and an untrusted certificate reach most callers as a mere "transport failure" or time-out, and the
reason only goes to the log. A caller that stops waiting passes the client's events to `connection_hint`, and the error
then has the likely cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException

from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    CorruptRecordError,
    FencedError,
    LostRangeError,
    MissingTopicError,
    ProducerError,
    RejectedError,
    SamzapyError,
    TemporaryError,
    TopicPolicyError,
    UndeliveredError,
)

_NAMES: Mapping[type[SamzapyError], str] = {
    # The broker, the network or the cluster is not there, or not yet.
    BrokerUnavailableError: """
        _TRANSPORT _RESOLVE _ALL_BROKERS_DOWN _TIMED_OUT _NODE_UPDATE _WAIT_COORD _WAIT_CACHE _UNKNOWN_BROKER
        _DESTROY_BROKER LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE
        REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
        NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_CONTROLLER KAFKA_STORAGE_ERROR
        LOG_DIR_NOT_FOUND LISTENER_NOT_FOUND FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH STALE_BROKER_EPOCH
        STALE_CTRL_EPOCH PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE OFFSET_NOT_AVAILABLE
        REBOOTSTRAP_REQUIRED INCONSISTENT_VOTER_SET MISMATCHED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID
        """,
    # Trying again later may help, and it is not the connection.
    TemporaryError: """
        _RETRY _IN_PROGRESS _PREV_IN_PROGRESS _QUEUE_FULL _ISR_INSUFF _INTR _PARTIAL _UNDERFLOW
        _ASSIGNMENT_LOST _MAX_POLL_EXCEEDED _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _OUTDATED
        ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS MEMBER_ID_REQUIRED UNSTABLE_OFFSET_COMMIT
        CONCURRENT_TRANSACTIONS THROTTLING_QUOTA_EXCEEDED FETCH_SESSION_ID_NOT_FOUND
        INVALID_FETCH_SESSION_EPOCH REASSIGNMENT_IN_PROGRESS NO_REASSIGNMENT_IN_PROGRESS ELECTION_NOT_NEEDED
        GROUP_MAX_SIZE_REACHED FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH UNRELEASED_INSTANCE_ID
        SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH SHARE_SESSION_LIMIT_REACHED FENCED_STATE_EPOCH
        STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED
        """,
    FencedError: """
        _FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH TRANSACTION_COORDINATOR_FENCED FENCED_INSTANCE_ID
        """,
    # The same for a record; its transaction cannot go on. A commit with such records fails with the last code; a record
    # that a broker refused keeps the broker's code.
    UndeliveredError: "_MSG_TIMED_OUT _TIMED_OUT_QUEUE _INCONSISTENT",
    # The transaction or the producer cannot go on.
    ProducerError: """
        _FATAL _PURGE_QUEUE _PURGE_INFLIGHT _GAPLESS_GUARANTEE
        OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING
        UNKNOWN_PRODUCER_ID TRANSACTION_ABORTABLE MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD
        INVALID_TIMESTAMP
        """,
    MissingTopicError: """
        _UNKNOWN_TOPIC _UNKNOWN_PARTITION UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID
        """,
    LostRangeError: "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET _NO_OFFSET _LOG_TRUNCATION",
    CorruptRecordError: """
        _BAD_MSG _BAD_COMPRESSION INVALID_MSG INVALID_MSG_SIZE UNSUPPORTED_FOR_MESSAGE_FORMAT
        _KEY_DESERIALIZATION _VALUE_DESERIALIZATION PRINCIPAL_DESERIALIZATION_FAILURE
        """,
    TopicPolicyError: """
        INVALID_CONFIG INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT
        POLICY_VIOLATION TOPIC_EXCEPTION
        """,
    RejectedError: """
        TOPIC_ALREADY_EXISTS TOPIC_DELETION_DISABLED NON_EMPTY_GROUP GROUP_ID_NOT_FOUND _UNKNOWN_GROUP
        GROUP_SUBSCRIBED_TO_TOPIC RESOURCE_NOT_FOUND DUPLICATE_RESOURCE DUPLICATE_VOTER VOTER_NOT_FOUND
        OPERATION_NOT_ATTEMPTED
        """,
    # Credentials, permissions and settings, which the operator can mend.
    ConfigError: """
        _SSL _AUTHENTICATION _INVALID_ARG _NOT_CONFIGURED _UNKNOWN_PROTOCOL _UNSUPPORTED_FEATURE
        SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE SECURITY_DISABLED
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND
        DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE
        UNACCEPTABLE_CREDENTIAL INVALID_TRANSACTION_TIMEOUT INVALID_REQUIRED_ACKS INVALID_SESSION_TIMEOUT
        INVALID_GROUP_ID INCONSISTENT_GROUP_PROTOCOL UNSUPPORTED_VERSION UNSUPPORTED_COMPRESSION_TYPE
        UNSUPPORTED_ASSIGNOR UNSUPPORTED_ENDPOINT_TYPE INVALID_REGULAR_EXPRESSION
        """,
    # Neither the operator nor time helps: a fault in samzapy or in librdkafka, or something we never ask for.
    SamzapyError: """
        NO_ERROR UNKNOWN _DESTROY _FAIL _CRIT_SYS_RESOURCE _FS _EXISTING_SUBSCRIPTION _CONFLICT _STATE
        _NOT_IMPLEMENTED _KEY_SERIALIZATION _VALUE_SERIALIZATION _READ_ONLY _NOENT _INVALID_TYPE _APPLICATION
        _NOOP _INVALID_DIFFERENT_RECORD _PARTITION_EOF OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE
        INVALID_REQUEST INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED UNKNOWN_SUBSCRIPTION_ID
        TELEMETRY_TOO_LARGE INVALID_REGISTRATION INVALID_RECORD_STATE INVALID_VOTER_KEY
        STREAMS_INVALID_TOPOLOGY
        """,
}

ERROR_TYPES: Mapping[int, type[SamzapyError]] = {
    getattr(KafkaError, name): kind
    for kind, names in _NAMES.items()
    for name in names.split()
    # A name that this librdkafka does not have yet, or no more, cannot occur.
    if hasattr(KafkaError, name)
}
"""Our error class for each of librdkafka's codes."""

_ADVICE: Mapping[type[SamzapyError], str] = {
    BrokerUnavailableError: "see whether the brokers run and can be reached from here; it is tried again",
    TemporaryError: "it is tried again",
    FencedError: "a newer owner has the transactional id, or the transaction timed out: read and decide again",
    UndeliveredError: "the outcome is in doubt: see whether the brokers of the topics written to can be reached",
    ProducerError: "the outcome is in doubt: make a new producer, read and decide again",
    MissingTopicError: "create the topic, or correct its name in the configuration",
    LostRangeError: "the offset is not on the topic (any more): see `samzapy doctor`",
    CorruptRecordError: "see the broker's log and `samzapy doctor`",
    TopicPolicyError: "the cluster does not allow the topic as asked for: see the settings named above",
    RejectedError: "see whether this was done before",
    SamzapyError: "this is a fault: please report it with the log",
}

_TLS_OR_PASSWORD = "see security.protocol, sasl.mechanism, user, password and ssl.ca.location"
_RIGHTS = "`samzapy acl` prints the rights that each role needs"
_CONFIG_HINTS: Mapping[int, str] = {
    KafkaError._SSL: f"the TLS connection failed: {_TLS_OR_PASSWORD}",
    KafkaError._AUTHENTICATION: f"the broker refused to let us in: {_TLS_OR_PASSWORD}",
    KafkaError.SASL_AUTHENTICATION_FAILED: f"the broker refused to let us in: {_TLS_OR_PASSWORD}",
    # Kafka does not tell a user without rights which topics exist.
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "this user lacks a right on the topic, or there is no such topic: "
    f"{_RIGHTS}",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"this user lacks a right on the consumer group: {_RIGHTS}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"this user lacks a right on the cluster or on the topic: {_RIGHTS}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"this user lacks WRITE on the transactional id: {_RIGHTS}",
    KafkaError.INVALID_SESSION_TIMEOUT: "raise job.coordinator.election.session.ms to the brokers' "
    "group.min.session.timeout.ms, or lower that",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower the timeout, or raise the broker's transaction.max.timeout.ms",
}


def translate(error: KafkaError | KafkaException, doing: str) -> SamzapyError:
    """The error of ours that says the same. `doing` is a phrase: "creating topic x".

    A fatal error of a producer is never a `TemporaryError`, whatever its code: that producer is of no use.
    """
    inner = kafka_error(error)
    code = inner.code()
    kind = ERROR_TYPES.get(code)
    if kind is None:
        kind = TemporaryError if inner.retriable() else SamzapyError
    if (inner.fatal() or inner.txn_requires_abort()) and not issubclass(kind, FencedError | ConfigError):
        kind = UndeliveredError if issubclass(kind, TemporaryError | UndeliveredError) else ProducerError
    elif inner.retriable() and not issubclass(kind, TemporaryError):
        kind = TemporaryError
    hint = _CONFIG_HINTS.get(code, "correct the Kafka settings") if kind is ConfigError else _ADVICE[kind]
    return kind(f"{doing}: Kafka answered {inner.name()} ({inner.str()}); {hint}")


_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def lacks_right(error: KafkaError | KafkaException) -> bool:
    """Whether this user may not do it: an ACL is missing. Time does not help."""
    return kafka_error(error).code() in _NO_RIGHT


def consumer_recovers(error: KafkaError) -> bool:
    """Whether a consumer recovers from an error by itself.

    After a fault within the broker (UNKNOWN) too it fetches or joins again.
    """
    return error.code() == KafkaError.UNKNOWN or isinstance(translate(error, ""), TemporaryError)


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    """The `KafkaError` inside a `KafkaException`."""
    if isinstance(error, KafkaException):
        inner = error.args[0] if error.args else None
        return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(error))
    return error


_REFUSED = (
    KafkaError._SSL,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
)


def refusal(events: Iterable[KafkaError]) -> str | None:
    """The reason of a broker that refused us, and the settings to check.

    Returns None if no broker did.
    """
    for event in events:
        if event.code() in _REFUSED:
            return f"authentication or TLS: {event.str()}; {_TLS_OR_PASSWORD}"
    return None


_STATE = re.compile(r" \(after \d+ms in state [^)]*\)")
_WITHOUT_REASON = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
_LOOK_AT_BROKERS = "see whether the brokers run and can be reached from here"


def reported(events: Iterable[KafkaError]) -> str:
    """The distinct errors that a client reports, as a clause.

    The client reports a refused connection and a name without an address at once. Without an error, requests time out.
    """
    return f"the client reports {_distinct(events) or 'time-outs: neither an answer nor a refused connection'}"


def _distinct(events: Iterable[KafkaError]) -> str:
    texts = (_STATE.sub("", event.str()) for event in events if event.code() not in _WITHOUT_REASON)
    return " | ".join(dict.fromkeys(texts))


def connection_hint(events: Iterable[KafkaError], probe: Callable[[], str] = lambda: "") -> str:
    """The likely reason why no broker answers, out of the client's error events.

    The text also says what to check. A client that only timed out does not say whether its connections were accepted.
    Then `probe` is called, which gives sentences about that (`reachable.connections_text`).

    A listener with TLS or SASL closes the connection of a client without it,
    and the other way round, without an explanation. The only trace is that connections are made and break at once.
    """
    seen = list(events)
    refused = refusal(seen)
    if refused is not None:
        return refused
    texts = reported(seen)
    if any(mark in texts for mark in ("SSL", "SASL", "handshake", "Disconnected while requesting ApiVersion")):
        return f"this looks like authentication or TLS: {texts}; {_TLS_OR_PASSWORD}"
    connections = "" if _distinct(seen) else probe()
    clauses = [texts, connections.removesuffix("."), _LOOK_AT_BROKERS]
    return "; ".join(clause for clause in clauses if clause)


def unavailable(
    bootstrap_servers: str,
    waited_s: float,
    doing: str,
    events: Iterable[KafkaError] = (),
    probe: Callable[[], str] = lambda: "",
) -> SamzapyError:
    """The error for an answer that did not come in time.

    It has the addresses, the waiting time and the likely reason (`connection_hint`).
    """
    shown_s = round(waited_s, 1) if waited_s < 1 else round(waited_s)
    return BrokerUnavailableError(
        f"{doing}: no broker answered within {shown_s:g} s at {bootstrap_servers}; {connection_hint(events, probe)}"
    )
