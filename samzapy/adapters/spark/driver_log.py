"""The log of a container that runs as a driver of a Spark standalone cluster.

The page of the driver's worker serves it as text behind one line:
`==== Bytes 0-100 of 2048 of /work/driver-1/stderr ====`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

from samzapy.adapters.spark.standalone_launcher import parse_page
from samzapy.errors import RejectedError, TemporaryError

Ask = Callable[[str, str, str, bytes | None], tuple[int, bytes] | None]
_HEADING = re.compile(rb"==== Bytes (?P<start>\d+)-(?P<end>\d+) of (?P<length>\d+) of (?P<path>[^\n]*) ====\n")


class DriverLog:
    """The standard error of a driver (`cli.container.log_text.Log`).

    Args:
        page_url: of the master.
        handle: the driver's id.
        host: of its worker, for messages.
        ask: sends a request over HTTP, bounded in time and size (`adapters.web.client.ask`).
    """

    def __init__(self, page_url: str, handle: str, host: str, ask: Ask) -> None:
        self._page_url = page_url
        self._handle = handle
        self._ask = ask
        self._worker_url = ""
        self._by_hand = f"read work/{handle}/stderr in the directory of the Spark worker on host {host}"

    def length(self) -> int:
        heading, _ = self._part(0, 1)
        return int(heading["length"])

    def read(self, start: int, end: int) -> bytes:
        heading, text = self._part(start, end)
        return text if int(heading["start"]) == start else b""

    def _part(self, start: int, end: int) -> tuple[re.Match[bytes], bytes]:
        url = self._worker_url = self._worker_url or self._worker_of_driver()
        path = f"/log/?driverId={quote(self._handle, safe='')}&logType=stderr&offset={start}&byteLength={end - start}"
        answer = self._ask("GET", url, path, None)
        heading = None if answer is None or answer[0] != 200 else _HEADING.match(answer[1])
        if heading is None or answer is None:
            raise TemporaryError(
                f"wanted the log of {self._handle} from the page of its worker at {url}, found no answer with one; "
                f"{self._by_hand}"
            )
        return heading, answer[1][heading.end() :]

    def _worker_of_driver(self) -> str:
        answer = self._ask("GET", self._page_url, "/json/", None)
        page = parse_page(answer[1]) if answer is not None and answer[0] == 200 else None
        if page is None:
            raise TemporaryError(
                f"wanted the page of the Spark master at {self._page_url}, found no answer of an active master; "
                f"correct cluster.standalone.page.url, or {self._by_hand}"
            )
        driver = page.drivers.get(self._handle)
        if driver is None or driver.worker is None:
            raise RejectedError(
                f"wanted a living worker that has {self._handle}, found none on the page of the master at "
                f"{self._page_url}; {self._by_hand}"
            )
        return driver.worker.page_url
