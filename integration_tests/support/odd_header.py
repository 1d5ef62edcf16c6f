"""Write a record with any bytes as the name of a header.

Clients in C, Go or PHP can. The Python client only takes names that are text, so this calls librdkafka.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER = 0
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADER = 0, 1, 3, 4, 5, 7, 9
_COPY = 2
_WITHIN_MS = 30_000


def write_with_header_name(bootstrap_servers: str, topic: str, key: bytes, name: bytes) -> None:
    """Write a record with one header of this name to partition 0.

    Returns when it is written.
    """
    library = _library()
    reason = ctypes.create_string_buffer(512)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    for setting, value in ((b"bootstrap.servers", bootstrap_servers.encode()), (b"log_level", b"0")):
        assert library.rd_kafka_conf_set(settings, setting, value, reason, len(reason)) == 0, reason.value
    client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, settings, reason, len(reason)))
    assert client.value, reason.value
    number, size = ctypes.c_int, ctypes.c_size_t
    failure = library.rd_kafka_producev(
        client,
        *(number(_TOPIC), ctypes.c_char_p(topic.encode())),
        *(number(_PARTITION), ctypes.c_int32(0)),
        *(number(_FLAGS), number(_COPY)),
        *(number(_KEY), ctypes.c_char_p(key), size(len(key))),
        *(number(_VALUE), ctypes.c_char_p(b"v"), size(1)),
        *(number(_HEADER), ctypes.c_char_p(name), ctypes.c_char_p(b"x"), ctypes.c_ssize_t(1)),
        number(_END),
    )
    assert failure == 0, f"librdkafka's error {failure}"
    assert library.rd_kafka_flush(client, _WITHIN_MS) == 0, f"the record was not written within {_WITHIN_MS} ms"
    library.rd_kafka_destroy(client)


def _library() -> ctypes.CDLL:
    (path,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    return library
