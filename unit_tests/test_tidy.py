"""Rules about the text of the code itself: leftovers, sleeping tests, files that nothing uses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from samzapy.stream.codec import schema_records

REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("samzapy", "simulation", "benchmarks", "scripts", "unit_tests", "integration_tests")
# A peer that answers slowly is made of sleeping; every other test waits for something (`testing.waiting`).
SLOW_PEERS = {"unit_tests/adapters/web/test_server.py"}


def lines_with(pattern: str, folder: str, *, but: tuple[str, ...] = ()) -> list[str]:
    found = re.compile(pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path, number, line in _lines(folder)
        if found.search(line) and not (but and path.startswith(but))
    ]


def _lines(folder: str) -> Iterator[tuple[str, int, str]]:
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        if path != Path(__file__):
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                yield str(path.relative_to(REPOSITORY)), number, line


def test_nobody_stopped_in_the_middle() -> None:
    assert [] == lines_with(r"\b(TODO|FIXME|XXX|HACK)\b", "samzapy")


def test_only_the_command_line_prints() -> None:
    assert [] == lines_with(r"(?<![\w.])print\(", "samzapy", but=("samzapy/cli/", "samzapy/runtime/job_file.py"))


def test_unit_tests_do_not_sleep() -> None:
    sleeping = lines_with(r"\bsleep\(", "unit_tests")

    assert [] == [line for line in sleeping if line.partition(":")[0] not in SLOW_PEERS]


def test_every_schema_file_is_the_schema_of_a_record() -> None:
    files = [json.loads(path.read_text())["name"] for path in (REPOSITORY / "schemas").glob("*.avsc")]

    assert sorted(json.loads(schema.schema_json)["name"] for schema in schema_records()) == sorted(files)


def test_every_schema_that_ships_is_the_one_in_schemas() -> None:
    """`schemas` is a link for readers; the files are the package's, so an export without links has them too."""
    assert not (REPOSITORY / "samzapy" / "schemas").is_symlink()
    assert (REPOSITORY / "samzapy" / "schemas").resolve() == (REPOSITORY / "schemas").resolve()


def test_every_module_s_docstring_says_what_belongs_there() -> None:
    modules = [path for path in sorted((REPOSITORY / "samzapy").rglob("*.py")) if path.read_text().strip()]

    assert [] == [str(path) for path in modules if not path.read_text().startswith('"""')]


def test_no_text_refers_to_a_document_outside_the_repository() -> None:
    pattern = r"design section|\bseed 00\d|\b(reliability|spark|engines|design)\.md|\bH\d\d\b"

    assert [] == [line for folder in FOLDERS for line in lines_with(pattern, folder)]
    assert [] == [
        f"{page}: {line}"
        for page in (REPOSITORY / "docs").rglob("*.md")
        for line in page.read_text().splitlines()
        if re.search(pattern, line)
    ]
