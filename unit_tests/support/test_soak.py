from __future__ import annotations

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOAK = runpy.run_path(str(REPOSITORY / "scripts" / "soak.py"), run_name="soak")
SECTIONS, Section, row, main = SOAK["SECTIONS"], SOAK["Section"], SOAK["row"], SOAK["main"]
A_SECTION = Section(proof="bytes", size="100", command=("true",))


def test_every_path_of_a_section_is_there() -> None:
    paths = [
        argument
        for section in SECTIONS.values()
        for argument in section.command
        if "/" in argument or argument.endswith("_tests")
    ]

    assert paths
    assert [] == [path for path in paths if not (REPOSITORY / path).exists()]


def test_every_variable_of_a_section_is_read_by_a_test() -> None:
    """Else a section would run the small size and be reported as the full one."""
    code = "".join(path.read_text() for path in REPOSITORY.glob("*_tests/**/*.py") if path != Path(__file__))

    variables = {name for section in SECTIONS.values() for name in section.environment}
    assert [] == [name for name in variables if f'"{name}"' not in code]


def test_a_section_that_succeeded_is_reported_by_its_last_line() -> None:
    line = row(A_SECTION, 0, 61.4, "collected\n==== 27 passed in 60.1s ====\n\n", "abc123")

    assert "| abc123 | 27 passed in 60.1s; 61 s on " in line
    assert line.startswith("| bytes | 100 | 20")


def test_a_section_that_failed_is_reported_as_failed() -> None:
    assert "| FAILED with exit code 3: no output; 0 s on " in row(A_SECTION, 3, 0.2, "", "abc123")


def test_a_failed_section_does_not_stop_the_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = main.__globals__["SECTIONS"]
    main.__globals__["SECTIONS"] = {
        "fails": Section(proof="a", size="1", command=("sh", "-c", "echo no; exit 4")),
        "works": Section(
            proof="b", size="2", command=("sh", "-c", "echo $SIZE"), environment={"SIZE": "full"}, success="well"
        ),
    }
    try:
        code = main(["--logs", str(tmp_path)])
    finally:
        main.__globals__["SECTIONS"] = sections

    output = capsys.readouterr()
    assert 1 == code
    assert "FAILED with exit code 4: no;" in output.out
    assert "| b | 2 |" in output.out and "| well; " in output.out
    assert "full\n" == (tmp_path / "works.log").read_text()
    assert "soak: failed: fails;" in output.err


def test_an_unknown_section_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["histroies"])

    assert 2 == caught.value.code
    assert "wanted sections of histories, walks, " in capsys.readouterr().err
