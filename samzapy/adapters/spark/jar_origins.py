"""Check that Spark loads the Kafka connector from the verified jars.

A jar of the user's (`--packages`, `spark.jars`, SPARK_DIST_CLASSPATH) may have the same classes, and a class path gives
its first one. So the JVM is asked where it finds a class of each jar. That loads no class.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from samzapy.errors import ConfigError

# A jar's file name begins with its artifact.
_CLASS_OF = {
    "commons-pool2": "org/apache/commons/pool2/ObjectPool.class",
    "kafka-clients": "org/apache/kafka/clients/consumer/KafkaConsumer.class",
    "spark-sql-kafka-0-10": "org/apache/spark/sql/kafka010/KafkaSourceProvider.class",
    "spark-token-provider-kafka-0-10": "org/apache/spark/kafka010/KafkaTokenUtil.class",
}


def check_origins(jars: Sequence[Path], url_of: Callable[[str], str | None]) -> None:
    """Refuse a class path on which another jar comes before a verified one.

    A copy with the same bytes is accepted, such as that of an image.

    Args:
        jars: the verified ones, each of an artifact that is known here.
        url_of: the URL at which the JVM finds a resource, or None.

    Raises:
        ConfigError: a class comes from other bytes; the text has both files.
    """
    for jar in jars:
        artifact = max((name for name in _CLASS_OF if jar.name.startswith(name)), key=len)
        name = _CLASS_OF[artifact]
        url = url_of(name)
        origin = None if url is None else _file_of(url)
        if origin is None or not _is_same(origin, jar):
            class_name = name.removesuffix(".class").replace("/", ".")
            raise ConfigError(
                f"{class_name}: wanted it from the verified jar {jar}, found it in {origin or url or 'no jar'};"
                f" leave {artifact} out of --packages, --jars, spark.jars, spark.driver.extraClassPath and"
                " SPARK_DIST_CLASSPATH"
            )


def _file_of(url: str) -> Path | None:
    """The jar of `jar:file:/path/of.jar!/class`; None for another URL."""
    path, separator, _ = url.removeprefix("jar:file:").partition("!/")
    return Path(unquote(path)) if separator and url.startswith("jar:file:") else None


def _is_same(origin: Path, jar: Path) -> bool:
    return origin.resolve() == jar.resolve() or (origin.is_file() and filecmp.cmp(origin, jar, shallow=False))
