"""Secrets that are planted in a job, and a search for them in all its traces.

Places are searched as bytes: files whole, pages as they are answered, `/proc/<pid>/cmdline` and `environ`, and what
listens on a port. A secret is also looked for as base64 and as UTF-16, in which it would be as readable.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urljoin, urlsplit

PAGES_MAX = 150
_PAGE_BYTES_MAX = 8 * 1024 * 1024
_ANSWER_WAIT_S = 120.0
_STRANGER_WAIT_S = 5.0
_LISTENS = "0A"
_LINK = re.compile(rb"(?:href|src)=\"([^\"#]+)\"")


@dataclass(slots=True)
class Search:
    """Where canaries were looked for, and where they are: `place: name of the canary`."""

    canaries: Mapping[str, str]
    hits: list[str] = field(default_factory=list)
    files: int = 0
    byte_count: int = 0

    def text(self, place: str, content: bytes) -> None:
        """Search one text."""
        self.byte_count += len(content)
        for name, canary in self.canaries.items():
            if any(spelling in content for spelling in _spellings(canary)):
                self.hits.append(f"{place}: {name}")

    def tree(self, directory: Path, *, but: Sequence[Path] = ()) -> None:
        """Search all files below `directory`, but those in `but`."""
        for path in directory.rglob("*"):
            if path in but or path.is_symlink() or not path.is_file():
                continue
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # Removed right now.
                continue
            if content:
                self.files += 1
                # Kafka makes index files of 10 MiB that have nothing but zeros at the end.
                # One of them is kept, because it may be half of a letter of UTF-16.
                self.text(str(path), content[: len(content.rstrip(b"\0")) + 1])

    def process(self, pid: int, *, may_have: Iterable[str] = ()) -> None:
        """Search a process's command and environment but for variables in `may_have`."""
        entries = [*_proc(pid, "cmdline").split(b"\0")]
        for entry in _proc(pid, "environ").split(b"\0"):
            if entry.partition(b"=")[0].decode(errors="replace") not in may_have:
                entries.append(entry)
        self.text(f"process {pid} ({_proc(pid, 'comm').decode().strip()})", b"\0".join(entries))

    def pages(self, url: str, paths: Iterable[str] = ("/",), *, token: str = "") -> list[str]:
        """Search the pages at `url` and all that they link to there; returns their paths.

        Args:
            token: a credential that is sent with each request.
        """
        seen: set[str] = set()
        waiting = deque(paths)
        while waiting and len(seen) < PAGES_MAX:
            path = waiting.popleft()
            if path in seen:
                continue
            seen.add(path)
            answer = ask(url, "GET", path, token=token)
            self.text(f"{url}{path}", answer)
            waiting.extend(_links(url, path, answer))
        return sorted(seen)


def _spellings(canary: str) -> Iterator[bytes]:
    yield canary.encode()
    yield canary.encode("utf-16-le")
    # Base64 spells a text by its surroundings; without the first and the last letters it has three spellings.
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + canary.encode())
        yield encoded[4 if before else 0 : -4]


def ask(url: str, method: str, path: str, body: bytes | None = None, *, token: str = "") -> bytes:
    """The head and the body of an answer, of any status; empty without one."""
    target = urlsplit(url)
    connection = HTTPConnection(target.hostname or "", target.port, timeout=_ANSWER_WAIT_S)
    try:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        head = "".join(f"{name}: {value}\n" for name, value in answer.getheaders())
        return f"{answer.status}\n{head}\n".encode() + answer.read(_PAGE_BYTES_MAX)
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


def _links(url: str, path: str, page: bytes) -> Iterator[str]:
    for link in _LINK.findall(page):
        target = urlsplit(urljoin(f"{url}{path}", link.decode(errors="replace").replace("&amp;", "&")))
        is_here = target.netloc == urlsplit(url).netloc
        if is_here and "/static/" not in target.path and "kill" not in target.path:
            yield f"{target.path}?{target.query}" if target.query else target.path


def listening(pids: Iterable[int]) -> list[tuple[str, int]]:
    """The addresses and ports on which processes listen."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return sorted(
        {
            _address(fields[1])
            for table in ("tcp", "tcp6")
            for fields in map(str.split, Path("/proc/net", table).read_text().splitlines()[1:])
            if fields[3] == _LISTENS and fields[9] in inodes
        }
    )


def _sockets(pid: int) -> Iterator[str]:
    directory = Path("/proc", str(pid), "fd")
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(directory / name)
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                yield target[len("socket:[") : -1]
    except (FileNotFoundError, PermissionError):
        return


def _address(text: str) -> tuple[str, int]:
    """The address and port in a row of `/proc/net/tcp`, little-endian there."""
    address, _, port = text.partition(":")
    raw = b"".join(struct.pack("<I", int(address[at : at + 8], 16)) for at in range(0, len(address), 8))
    if len(raw) == 16 and raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def answer_of_spark(port: int) -> bytes:
    """The answer of one of Spark's ports to an unknown client, or no bytes.

    A frame of Spark's protocol: its length, type 3 (a request), its number, the length of the body, the body.
    """
    body = b"\xac\xed\x00\x05stranger"
    request = struct.pack(">bqi", 3, 7, len(body)) + body
    try:
        with socket.create_connection(("127.0.0.1", port), _STRANGER_WAIT_S) as connection:
            connection.settimeout(_STRANGER_WAIT_S)
            connection.sendall(struct.pack(">q", len(request) + 8) + request)
            return connection.recv(4096)
    except OSError:
        return b""


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
