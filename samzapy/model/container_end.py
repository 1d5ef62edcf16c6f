"""Why a container ended, as it says itself or as the finder of its process says.

A report never has a key's value. It has the key's digest, `sha256` of its bytes.
"""

from __future__ import annotations

import ast
import codecs
import hashlib
import re
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from samzapy.errors import ExitCode, SamzapyError
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.text import camel_case

UNKNOWN: Final = -1
"""An exit code or an offset that is not known."""
MESSAGE_LENGTH_MAX: Final = 500
_NAME_LENGTH_MAX: Final = 400
_DIGEST_CHARS: Final = 16
# Shorter keys would take letters out of other words.
_KEY_CHARS_MIN: Final = 3
_ID = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
# As `container.task.error_policy` writes a message's place. The key is a literal of Python, or the beginning of one.
_KEY = re.compile(
    r"key (?:(?P<head>b['\"].{198})\.\.\. \[cut, whole length (?P<length>\d{1,10}) bytes, "
    r"sha256 (?P<sha256>[0-9a-f]{64})\]"
    r"|(?P<literal>b'(?:[^'\\]|\\.)*'|b\"(?:[^\"\\]|\\.)*\"))"
)
_PLACE = re.compile(r"task (?P<task>\S+) failed at (?P<ssp>\S+) offset (?P<offset>\d+), key (?P<key>None|sha256:\w+)")
# A place and a digest hold no key, and a key may be a part of their text: `123` of the offset 51234.
_WITHOUT_KEY = re.compile(rf"{_PLACE.pattern}|key sha256:[0-9a-f]{{{_DIGEST_CHARS}}}")
# The end of a key that is cut may be in the middle of an escape.
_WHOLE_ESCAPES = re.compile(r"(?:[^\\]|\\x[0-9a-f]{2}|\\[^x])*")
_CLASS = re.compile(r": (?P<error>[A-Za-z_]\w*)(?::|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """The end of a container that did not stop in good order.

    Attributes:
        exit_code: of its process; UNKNOWN where neither it nor a launcher reported one.
        error: the class of the error; of user code where that failed. Empty: no reason was given.
        task_name, ssp, offset, key_digest: the message at which user code failed; empty and UNKNOWN where none did.
        message: one line for the operator.
        ended_at_ms: wall clock.
    """

    processor_id: ProcessorId
    execution_id: ExecutionId
    host: str
    exit_code: int = UNKNOWN
    error: str = ""
    task_name: str = ""
    ssp: str = ""
    offset: int = UNKNOWN
    key_digest: str = ""
    message: str = ""
    ended_at_ms: int

    @property
    def has_reason(self) -> bool:
        """Whether the container gave a reason itself."""
        return bool(self.error)

    def is_recorded(self, recorded: Mapping[ProcessorId, ContainerEnd]) -> bool:
        """Whether the stream has this end, or a later one of its processor.

        `recorded`: the ends on the coordinator stream.
        """
        known = recorded.get(self.processor_id)
        if known is None:
            return False
        if known.execution_id == self.execution_id:
            return known.has_reason or not self.has_reason
        return known.ended_at_ms >= self.ended_at_ms

    @classmethod
    def of_error(
        cls,
        error: BaseException,
        *,
        processor_id: ProcessorId,
        execution_id: ExecutionId,
        host: str,
        at_ms: int,
    ) -> ContainerEnd:
        """The end by an error. A message that the error names is read from its text."""
        text = with_key_digests(str(error))
        place = _PLACE.search(text)
        at = {} if place is None else place.groupdict()
        cause = None if place is None else _CLASS.match(text, place.end())
        return cls(
            processor_id=processor_id,
            execution_id=execution_id,
            host=host,
            exit_code=error.exit_code if isinstance(error, SamzapyError) else ExitCode.FAILED,
            error=type(error).__name__ if cause is None else cause["error"],
            task_name=at.get("task", ""),
            ssp=at.get("ssp", ""),
            offset=int(at.get("offset", UNKNOWN)),
            key_digest=at.get("key", "").removeprefix("sha256:").removeprefix("None"),
            message=_one_line(text),
            ended_at_ms=at_ms,
        )

    def as_json(self) -> Mapping[str, object]:
        return {camel_case(name): value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> ContainerEnd:
        """The value that `as_json` describes, with texts cut to their limits.

        Raises:
            ValueError: a field is missing or wrong; says which.
        """
        parsed: dict[str, Any] = {}
        for each in fields(cls):
            name = camel_case(each.name)
            value = values.get(name)
            wanted: type = int if each.type == "int" else str
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise ValueError(f"{name}: wanted {_WORDS[wanted]}, found {value!r:.100}")
            if isinstance(value, int) and not UNKNOWN <= value < 2**63:
                raise ValueError(f"{name}: wanted a number from {UNKNOWN} on, found {value!r:.100}")
            parsed[each.name] = _cut(each.name, value) if isinstance(value, str) else value
        for name in ("processor_id", "execution_id"):
            if not _ID.fullmatch(parsed[name]):
                raise ValueError(f"{camel_case(name)}: wanted an id, found {parsed[name]!r:.100}")
        return cls(**parsed)

    def __str__(self) -> str:
        return end_text(self.as_json())


def exit_text(exit_code: object) -> str:
    """The words for an exit code; a shell's code of a signal has its name."""
    if exit_code is None or exit_code == UNKNOWN:
        return "ended"
    by_signal = _SIGNAL_NAMES.get(exit_code)
    return f"ended with exit code {exit_code}" + ("" if by_signal is None else f" ({by_signal})")


def end_text(values: Mapping[str, object]) -> str:
    """The sentence about an end, from the fields of `ContainerEnd.as_json`."""
    ended = exit_text(values.get("exitCode"))
    return f"container {values.get('executionId')} on {values.get('host')} {ended}: {values.get('message')}"


def message_of(text: str) -> tuple[TaskName, str, int] | None:
    """The task, SSP and offset of the message that an error's text names.

    None where it names no message.
    """
    place = _PLACE.search(with_key_digests(text))
    return None if place is None else (TaskName(place["task"]), place["ssp"], int(place["offset"]))


def with_key_digests(text: str) -> str:
    """`text` with the digest of each key that it names in place of the key.

    User code may name the key in the text of its error too.
    """
    patterns: list[str] = []

    def digested(matched: re.Match[str]) -> str:
        if matched["sha256"]:
            patterns.extend(_patterns_of_cut_key(matched["head"], int(matched["length"]), len(text)))
            return f"key sha256:{matched['sha256'][:_DIGEST_CHARS]}"
        key = _key_of(matched["literal"])
        patterns.extend(map(re.escape, _texts_of(key)))
        return f"key sha256:{hashlib.sha256(key).hexdigest()[:_DIGEST_CHARS]}"

    without, parts, at = _KEY.sub(digested, text), [], 0
    # The longest first: one may be a part of another.
    keys = re.compile("|".join(sorted(patterns, key=len, reverse=True)) or "(?!)", re.DOTALL)
    for kept in _WITHOUT_KEY.finditer(without):
        parts += [keys.sub("<key>", without[at : kept.start()]), kept[0]]
        at = kept.end()
    return "".join([*parts, keys.sub("<key>", without[at:])])


def _texts_of(key: bytes, rest: str | None = None) -> set[str]:
    """The key as user code may name it: decoded, or as a literal of Python.

    Texts that are too short to be replaced are left out.

    Args:
        rest: of a key that is cut, a text in place of its rest. It decides how the literal escapes quotes.
    """
    # A character of which the cut left a part is left out.
    text, end = codecs.getincrementaldecoder("utf-8")("replace").decode(key, final=rest is None), rest or ""
    # A text has quotes where its serde is JSON, and user code names it without them.
    texts = {text, text.strip('"')}
    literals = {repr(each + end)[1:-1] for each in texts} | {repr(key + end.encode())[2:-1]}
    texts |= {literal.removesuffix(end) for literal in literals}
    return {each for each in texts if len(each) >= _KEY_CHARS_MIN}


def _patterns_of_cut_key(head: str, length: int, length_max: int) -> list[str]:
    """Patterns of a key of which only the beginning is known.

    The rest of its line is a part of the match, since the end of the key is not known.
    """
    quote = head[1]
    known = _key_of(f"b{quote}{_whole_escapes(head[2:])}{quote}")
    rest = max(0, min(length - len(known), length_max))
    texts = _texts_of(known, '"' if quote == "'" else "")
    return [rf"{re.escape(each)}.{{0,{rest}}}[^\n]*" for each in texts]


def _whole_escapes(body: str) -> str:
    matched = _WHOLE_ESCAPES.match(body)
    return body if matched is None else matched[0]


def _key_of(literal: str) -> bytes:
    """The key that a literal says.

    The bytes of its text if user code wrote a text that only looks like one.
    """
    try:
        key: bytes = ast.literal_eval(literal)
    except (SyntaxError, ValueError):
        return literal[2:-1].encode(errors="replace")
    return key


_SIGNAL_NAMES: Final[Mapping[object, str]] = {128 + number: number.name for number in signal.Signals}
_WORDS: Final = {int: "a whole number", str: "a text"}


def _one_line(text: str) -> str:
    return _cut("message", " ".join(text.split()))


def _cut(name: str, value: str) -> str:
    # Lone surrogates are legal in JSON and cannot be written to a record.
    limit = MESSAGE_LENGTH_MAX if name == "message" else _NAME_LENGTH_MAX
    return value[:limit].encode(errors="replace").decode()
