"""The log of a driver, from the page of its worker."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from samzapy.adapters.spark.driver_log import DriverLog
from samzapy.errors import RejectedError, TemporaryError

MASTER, WORKER = "http://master:8080", "http://worker-a:8081"
TEXT = b"Launch Command: java\nsamzapy: ends\n"


class Pages:
    """A master and its worker, as far as a log is asked of them."""

    def __init__(self, *, driver_worker: str = "worker-a", master_answers: bool = True) -> None:
        self.driver_worker = driver_worker
        self.master_answers = master_answers
        self.worker_answers = True

    def ask(self, method: str, url: str, path: str, body: bytes | None) -> tuple[int, bytes] | None:
        if url == MASTER:
            return (200, json.dumps(self._master()).encode()) if self.master_answers else None
        assert url == WORKER
        if not self.worker_answers:
            return None
        query = parse_qs(urlsplit(path).query)
        assert (["driver-1"], ["stderr"]) == (query["driverId"], query["logType"])
        start = int(query["offset"][0])
        end = min(len(TEXT), start + int(query["byteLength"][0]))
        heading = f"==== Bytes {start}-{end} of {len(TEXT)} of /spark/work/driver-1/stderr ====\n"
        return 200, heading.encode() + TEXT[start:end]

    def _master(self) -> dict[str, object]:
        worker = {
            "id": "worker-a",
            "host": "10.0.0.1",
            "webuiaddress": WORKER,
            "state": "ALIVE",
            "coresfree": 1,
            "memoryfree": 1,
            "resources": {},
            "resourcesfree": {},
        }
        driver = {"id": "driver-1", "state": "RUNNING", "mainclass": "x", "worker": self.driver_worker}
        return {"status": "ALIVE", "workers": [worker], "activedrivers": [driver], "completeddrivers": []}


def a_log(pages: Pages) -> DriverLog:
    return DriverLog(MASTER, "driver-1", "10.0.0.1", pages.ask)


def test_any_part_of_the_log_is_read_without_the_heading_of_the_page() -> None:
    log = a_log(Pages())

    assert len(TEXT) == log.length()
    assert TEXT == log.read(0, 1000)
    assert TEXT[7:14] == log.read(7, 14)


@pytest.mark.parametrize(
    ("pages", "error", "reason"),
    [
        (Pages(master_answers=False), TemporaryError, "found no answer of an active master"),
        (Pages(driver_worker="worker-gone"), RejectedError, "wanted a living worker that has driver-1, found none"),
    ],
)
def test_a_log_that_cannot_be_asked_for_is_named_with_its_file_and_host(
    pages: Pages, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=rf"{reason}.*read work/driver-1/stderr .* on host 10\.0\.0\.1"):
        a_log(pages).length()


def test_a_worker_without_its_page_is_named_with_the_file_and_the_host() -> None:
    pages = Pages()
    pages.worker_answers = False

    with pytest.raises(TemporaryError, match=rf"its worker at {WORKER}, found no answer .*read work/driver-1/stderr"):
        a_log(pages).length()
