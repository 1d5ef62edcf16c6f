"""Everything that is wrong with a configuration, in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from samzapy.errors import ConfigError, UnknownConfigKeyError

_SHOWN_MAX = 500


def _brief(error: ConfigError) -> str:
    """The text of an error, without the middle of a value that is very long."""
    text = str(error)
    left_out = len(text) - 2 * _SHOWN_MAX
    if left_out <= 0:
        return text
    return f"{text[:_SHOWN_MAX]} [{left_out} characters are left out] {text[-_SHOWN_MAX:]}"


class Problems:
    """Collects errors of a configuration, to raise them together."""

    def __init__(self) -> None:
        self._found: list[ConfigError] = []

    def __len__(self) -> int:
        return len(self._found)

    def of(self, check: Callable[..., object], *arguments: Any) -> None:
        """Call `check` and keep the error that it raises, if it raises one."""
        with self.of_block():
            check(*arguments)

    @contextmanager
    def of_block(self) -> Iterator[None]:
        """Keep the error that ends the block, if one does."""
        try:
            yield
        except ConfigError as error:
            self.add(error)

    def add(self, error: ConfigError) -> None:
        """Keep an error. One that is known already is not kept again."""
        if str(error) not in map(str, self._found):
            self._found.append(error)

    def raise_all(self) -> None:
        """Raise the errors that were kept.

        A single error is raised as it is; several become one error with a line for each.
        """
        if len(self._found) == 1:
            (error,) = self._found
            text = _brief(error)
            raise error if text == str(error) else type(error)(text)
        if self._found:
            # The narrowest kind that is true of the message.
            has_unknown = any(isinstance(error, UnknownConfigKeyError) for error in self._found)
            kind = UnknownConfigKeyError if has_unknown else ConfigError
            lines = "\n".join(f"- {_brief(error)}" for error in self._found)
            raise kind(f"wanted a valid configuration, found {len(self._found)} problems:\n{lines}")
