"""Calls of functions in another process, in which sets have another order.

Python orders the texts of a set by a number that each process chooses anew, PYTHONHASHSEED. A job whose results depend
on it gives others after a restart, which no test within one process sees.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Self


class OtherProcess:
    """A Python with another order of sets.

    As a context manager it is ended at the end. Functions, arguments and results go through pickle, so they are of
    importable modules. Both ends are of one test.
    """

    def __init__(self) -> None:
        seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._stdin, self._stdout):
            pipe.close()
        self._process.wait()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
        """Begin a call there.

        Returns:
            A function that waits for the result, and must be called before the next call begins. It does the call in
            this process if the other one did not: an argument cannot be pickled, or the call has raised an error.
        """
        try:
            call = pickle.dumps((function, arguments))
        except (pickle.PicklingError, AttributeError, TypeError):
            return lambda: function(*arguments)
        _write(self._stdin, call)

        def result() -> Any:
            is_done, value = pickle.loads(_read(self._stdout))  # noqa: S301
            return value if is_done else function(*arguments)

        return result

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout


def serve() -> None:
    """Do the calls on the standard input; results go to the standard output."""
    calls, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Tasks may print something.
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    while call := _read(calls):
        _write(results, _answer(call))


def _answer(call: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(call)  # noqa: S301
        return pickle.dumps((True, function(*arguments)))
    except Exception:
        # The caller does the same, and gets the error itself.
        return pickle.dumps((False, None))


def _write(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(len(content).to_bytes(8, "big") + content)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """Read the next content; empty at the end."""
    return pipe.read(int.from_bytes(pipe.read(8), "big"))
