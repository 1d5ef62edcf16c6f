"""The drill: incidents of a real job, for diagnosis. Started by `scripts/drill`."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

# The repository's own tools, which are no part of the package.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import click
from drill_incidents import INCIDENTS, Incident
from drill_signs import WITHIN_S, Row, Sighting, answered, table, text_of_command, text_of_page, words_seen
from drill_world import World, load_average

from samzapy.errors import ExitCode, SamzapyError

_ROUND_S = 1.0
_RANDOM = "random"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def drill() -> None:
    """Make an incident in a real job, and diagnose it from page or commands.

    Each incident has a broker and a job of its own, and everything is stopped at the end.
    docs/guides/drill.md has the incidents, and where each is shown.
    """


@drill.command("list")
def list_incidents() -> None:
    """List the incidents and their causes."""
    for incident in INCIDENTS.values():
        click.echo(f"{incident.name:<18} {incident.cause}")


@drill.command()
@click.argument("name", metavar="INCIDENT", type=click.Choice([*INCIDENTS, _RANDOM]))
@click.option("--seed", type=int, help="Of a random incident [default: another one each time].")
def run(name: str, seed: int | None) -> int:
    """Make INCIDENT, or a random one, and measure the time until you name its cause."""
    chosen = random.Random(seed).choice(list(INCIDENTS)) if name == _RANDOM else name
    incident = INCIDENTS[chosen]
    click.echo("A broker and a job start; this takes about half a minute.")
    with _Directory() as directory, _world(incident, directory.path) as world:
        begun_s = time.monotonic()
        request = incident.strike(world)
        click.echo("\nThe incident has begun. Name its cause, from the page alone or from commands alone.")
        click.echo(f"  page:     {world.url}/\n  commands: samzapy job status {' '.join(world.target)}")
        if request:
            click.echo(f"  A program has sent the request {request}, and its effect is missing.")
        for number, one in enumerate(INCIDENTS.values(), 1):
            click.echo(f"  {number:>2} {one.cause}")
        wrong = 0
        while answered(click.prompt("Cause (number or name)"), list(INCIDENTS)) != incident.name:
            wrong += 1
            click.echo(f"No, {time.monotonic() - begun_s:.0f} s so far.")
        click.echo(f"Right after {time.monotonic() - begun_s:.0f} s and {wrong} wrong answers: {incident.cause}.")
    return ExitCode.OK


@drill.command()
@click.argument("names", metavar="[INCIDENT]...", nargs=-1, type=click.Choice(list(INCIDENTS)))
@click.option("--keep", is_flag=True, help="Keep logs, and the last output of each command and view.")
def check(names: Sequence[str], keep: bool) -> int:
    """Look for the cause of each incident every second, and print the times.

    \b
    Exit codes: 0 commands and page show each cause within 60 s; 1 one of them does not.
    """
    rows = []
    for name in names or list(INCIDENTS):
        with _Directory(keep=keep) as directory:
            try:
                row = _checked(INCIDENTS[name], directory)
            except SamzapyError as error:
                click.echo(f"{name}: {error}", err=True)
                row = Row(name, None, None, load_average())
            rows.append(row)
            directory.keep = keep or not row.is_shown
        click.echo(table(rows[-1:]).splitlines()[-1])
    click.echo(f"\n{table(rows)}")
    return ExitCode.OK if all(row.is_shown for row in rows) else ExitCode.FAILED


def _world(incident: Incident, directory: Path) -> World:
    return World(directory, hosts=incident.hosts, disk_mb=incident.disk_mb)


@dataclass(slots=True)
class _Directory:
    """A temporary directory; it is removed at the end unless it is to be kept."""

    keep: bool = False
    path: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="samzapy-drill-")) / "world")

    def __enter__(self) -> _Directory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.keep or kind is not None:
            click.echo(f"Logs and data are in {self.path}", err=True)
        else:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def _checked(incident: Incident, directory: _Directory) -> Row:
    """Make the incident, and look until both ways show its cause, or the time is up."""
    with _world(incident, directory.path) as world:
        looks = _Looks(incident, world)
        looks.expect_nothing()
        return looks.until_seen()


@dataclass(slots=True)
class _Looks:
    """The looks at a job, by commands and at the page."""

    incident: Incident
    world: World
    request: str = ""
    begun_s: float = 0.0
    seen: dict[str, Sighting] = field(default_factory=dict)

    def expect_nothing(self) -> None:
        """Fail if a sign is there before the incident: then it would prove nothing."""
        if not self.incident.names_request:
            self._round("cli", self._commands(), self.incident.cli)
        self._round("page", self._views(), self.incident.page)
        if self.seen:
            raise SamzapyError(f"{self.incident.name}: wanted no sign before the incident, found {self.seen}")

    def until_seen(self) -> Row:
        """Make the incident, and look in both ways at once."""
        self.begun_s = time.monotonic()
        self.request = self.incident.strike(self.world)
        threads = [
            threading.Thread(target=self._look, args=("cli", self._commands, self.incident.cli)),
            threading.Thread(target=self._look, args=("page", self._views, self.incident.page)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Row(self.incident.name, self.seen.get("cli"), self.seen.get("page"), load_average())

    def _look(self, way: str, texts_of: Callable[[], Mapping[str, Callable[[], str]]], sign: str) -> None:
        while way not in self.seen and time.monotonic() - self.begun_s < WITHIN_S:
            self._round(way, texts_of(), sign)
            time.sleep(_ROUND_S)

    def _round(self, way: str, texts: Mapping[str, Callable[[], str]], sign: str) -> None:
        for where, text_of in texts.items():
            text = text_of()
            name = f"{way}-{where.strip('/').replace('/', '-').replace(' ', '-') or 'overview'}.txt"
            (self.world.directory / name).write_text(text)
            words = words_seen(text, sign)
            if words:
                self.seen[way] = Sighting(time.monotonic() - self.begun_s, where, words)
                return

    def _commands(self) -> Mapping[str, Callable[[], str]]:
        commands = [[part.format(request=self.request) for part in parts] for parts in self.incident.commands]
        return {
            " ".join(parts[:2]): lambda parts=parts: text_of_command(self.world.samzapy(*parts))  # type: ignore[misc]
            for parts in commands
        }

    def _views(self) -> Mapping[str, Callable[[], str]]:
        return {
            view: lambda view=view: text_of_page(self.world.page(view))  # type: ignore[misc]
            for view in self.incident.views
        }


def _interrupted(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def main(arguments: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    try:
        exit_code: int = drill.main(list(arguments), prog_name="scripts/drill", standalone_mode=False)
        return exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SamzapyError as error:
        print(f"scripts/drill: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print("scripts/drill: interrupted; everything is stopped", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
