"""Opens a container's Spark session in a thread.

That is two seconds of work for the JVM alone. Meanwhile the process checks its job and joins the election.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from samzapy.adapters.maven.fetch import jar_paths
from samzapy.adapters.maven.locks import connector_lock
from samzapy.errors import ConfigError
from samzapy.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
WORKER_DAEMON: Final = "samzapy.runtime.worker_daemon"
"""The module of the process that forks Python workers."""
_WORKER_MODULE = "samzapy.runtime.worker_process"
_ABANDONED_WITHIN_S = 20.0


class SparkStart:
    """The session of one container, from `begin` on.

    A context manager, at whose end the session is stopped.

    Args:
        job: `<name>-<id>`.
        processor_id: for the log.
        scratch_dir: Spark's own files go below it.
    """

    def __init__(self, job: str, processor_id: str, scratch_dir: Path) -> None:
        self._job = job
        self._processor_id = processor_id
        self._scratch_dir = scratch_dir
        self._begun_s = 0.0
        self._abandoned = threading.Event()
        self._are_settings_checked = threading.Event()
        self._is_up = threading.Event()
        self._cores = 0
        self._session: SparkSession | None = None
        self._class_loader: Any = None
        self._error: BaseException | None = None
        # A daemon: the process may end while the JVM still opens the session.
        self._thread = threading.Thread(target=self._run, name="samzapy-spark-start", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._abandoned.set()
        if self._thread.ident is None:
            return
        self._is_up.wait(_ABANDONED_WITHIN_S)
        if self._session is not None:
            self._session.stop()

    def begin(self) -> None:
        """Begin, unless it has begun."""
        if self._thread.ident is None:
            self._begun_s = time.monotonic()
            _LOG.info(
                "samzapy %s: processor %s of %s starts Spark; that takes some seconds",
                __version__,
                self._processor_id,
                self._job,
            )
            self._thread.start()

    def cores(self) -> int:
        """The number of cores, once the settings of spark-submit are checked.

        Raises:
            ConfigError: a setting of the user's would break exactly-once or order.
            EnvironmentMissingError: a jar could not be fetched.
        """
        self._are_settings_checked.wait()
        self._raise_error()
        return self._cores

    def session(self) -> SparkSession:
        """The session, once it is open.

        Raises:
            ConfigError, EnvironmentMissingError: as `cores`, or Spark refuses a setting.
        """
        self._is_up.wait()
        self._raise_error()
        assert self._session is not None, "the thread ended with an error or a session"
        from samzapy.adapters.spark.session import use_class_loader

        use_class_loader(self._session, self._class_loader)
        _LOG.info("Spark is up after %.1f s with %d cores", time.monotonic() - self._begun_s, self._cores)
        return self._session

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._open(jar_paths(connector_lock()))
        except BaseException as error:  # Raised again in the main thread.
            self._error = error
        finally:
            self._are_settings_checked.set()
            self._is_up.set()

    def _open(self, jars: Sequence[Path]) -> None:
        # Imported here, in the thread: PySpark takes half a second.
        from samzapy.adapters.spark.session import checked_settings, class_loader_here, open_session, start_workers

        settings = checked_settings()
        self._cores = settings.cores
        self._are_settings_checked.set()
        if self._abandoned.is_set():
            return
        try:
            session = open_session(settings, self._job, self._scratch_dir, jars, worker_daemon=WORKER_DAEMON)
        except Exception as error:
            if not _is_refusal(error):
                raise
            # Only here: this module takes another quarter of a second, and the JVM would start after it.
            from samzapy.adapters.spark.query import reason_of

            raise ConfigError(
                "wanted a Spark session with the settings given to spark-submit, found: "
                f"{reason_of(str(error))}; correct --conf or spark-defaults.conf"
            ) from error
        self._class_loader = class_loader_here(session)
        self._session = session
        self._is_up.set()
        if self._abandoned.is_set():
            return
        try:
            start_workers(session, self._cores, _WORKER_MODULE)
        except Exception as error:
            # The session may be stopped meanwhile. Workers that do not start are left to the query.
            _LOG.debug("starting workers: %s", error)


def _is_refusal(error: Exception) -> bool:
    """Whether Spark's answer to the settings is an error.

    Spark itself checks most of them. Another error of py4j means that the JVM has ended.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JJavaError)
