"""The tracer of this process, if its environment asks for one.

OpenTelemetry is imported only then. Traces are never a reason for a job to stop or to wait: if they cannot be had, one
line of the log says why.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from samzapy.adapters.otel.wishes import trouble_of, wanted_exporters
from samzapy.config import JobConfig
from samzapy.errors import ConfigError, EnvironmentMissingError, SamzapyError
from samzapy.model.tracing import NO_TRACER, Tracer

if TYPE_CHECKING:
    from samzapy.adapters.otel.tracer import OtelTracer

FLUSH_S: Final = 2.0
"""How long the end of a process waits for its last spans to be sent."""
_ADAPTER: Final = "samzapy.adapters.otel.tracer"
_LOG = logging.getLogger(__name__)
_lock = threading.Lock()
_open: OtelTracer | None = None
# Its reason is logged once.
_is_refused = False


def tracer_of(
    config: JobConfig, environment: Mapping[str, str], *, execution_id: str = "", is_quiet: bool = False
) -> Tracer:
    """The tracer of this process; the same one for each caller until `close`.

    Args:
        execution_id: names this process among those of the job; empty where it runs no container.
        is_quiet: leave the log to another process of the container.
    """
    global _open, _is_refused
    names = wanted_exporters(environment)
    with _lock:
        if not names or _is_refused:
            return NO_TRACER
        if _open is None:
            try:
                _open = _opened(names, config, environment, execution_id)
            except SamzapyError as error:
                _is_refused = True
                _LOG.log(logging.DEBUG if is_quiet else logging.WARNING, "no traces: %s; the job goes on", error)
                return NO_TRACER
        return _open


def _opened(
    names: tuple[str, ...], config: JobConfig, environment: Mapping[str, str], execution_id: str
) -> OtelTracer:
    trouble = trouble_of(names, environment)
    if trouble is not None:
        raise ConfigError(trouble)
    try:
        from samzapy.adapters.otel.tracer import open_tracer
    except ImportError as error:
        raise EnvironmentMissingError(
            f"wanted OpenTelemetry, found no module {error.name}: run pip install 'samzapy[otel]'"
        ) from error
    resource = {"service.name": f"samzapy-{config.job}", "samzapy.job": config.job}
    if execution_id:
        resource["service.instance.id"] = execution_id
    try:
        return open_tracer(names, config.job, resource)
    except Exception as error:
        # Of any class. Its text may have a header, or an endpoint with a password.
        raise ConfigError(
            f"wanted OTEL_ variables that the SDK takes, found a value that it refuses ({type(error).__name__})"
        ) from error


def close() -> None:
    """Send the last spans of this process, within `FLUSH_S`."""
    global _open, _is_refused
    # Within the lock: another caller may end the process when it returns.
    with _lock:
        tracer, _open, _is_refused = _open, None, False
        if tracer is not None:
            tracer.close(FLUSH_S)


def closing_at_end(worker: Callable[..., int]) -> Callable[..., int]:
    """PySpark's loop of a worker, which sends the last spans when it ends.

    It ends by Spark's word, or with its socket.
    """

    def run(*given: object) -> int:
        try:
            code = worker(*given)
        except BaseException:
            close()
            raise
        if code:
            close()
        return code

    return run


def hold_hangup(environment: Mapping[str, str]) -> bool:
    """Keep SIGHUP from this process and those that it forks, where traces are wanted.

    Returns whether they are.

    PySpark's daemon ends its workers by SIGHUP, and sets their default action before each of Spark's tasks. So a
    handler would not stay, but a blocked signal can be waited for (`end_at_hangup`).
    """
    if not wanted_exporters(environment):
        return False
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    return True


def end_at_hangup() -> None:
    """End this worker on SIGHUP, where it is held, after the last spans are sent."""
    if signal.SIGHUP in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        threading.Thread(target=_close_and_end, name="samzapy-hangup", daemon=True).start()


def _close_and_end() -> None:
    signal.sigwait([signal.SIGHUP])
    close()
    # The main thread may be anywhere, as with the signal's default action.
    os.kill(os.getpid(), signal.SIGKILL)


def preload(environment: Mapping[str, str]) -> None:
    """Import OpenTelemetry where traces are wanted.

    The workers share its memory then.
    """
    if wanted_exporters(environment):
        try:
            import_module(_ADAPTER)
        except ImportError:
            _LOG.debug("the extra otel is not installed")
