"""Rules about the code's text: leftovers, sleeping tests, unused files."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from samzapy.stream.codec import schema_records

REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("samzapy", "simulation", "benchmarks", "scripts", "unit_tests", "integration_tests")
# A peer that answers slowly is made of sleeping; every other test waits for something (`testing.waiting`).
SLOW_PEERS = {"unit_tests/adapters/web/test_server.py"}
# A job in memory reads the clock in many modules.
WHOLE_CLOCKS = {"unit_tests/testing/test_job.py"}
# The parts of the code that keep the rules about language. The lists only grow.
PLAIN_ENGLISH = (
    "samzapy",
    "simulation",
    "benchmarks",
    "scripts",
    "unit_tests",
    "integration_tests",
    "typing_tests",
)
TESTS = ("unit_tests", "integration_tests", "typing_tests")
# Names that do not tell what the value is: `status`, `offset` or `other_writer` do.
VAGUE_NAMES = frozenset({"found", "told", "said", "heard", "word", "whoever", "somebody", "nobody"})
PRONOUNS_IN_TEST_NAMES = re.compile(r"_(?:what|who|whom|whoever|somebody|nobody|told|said|heard)(?=_|$)")
ABOVE_A_LIMIT = {
    "samzapy/container/task/handling.py each": "the loop over messages: a call more for each message is measurable",
}
SUMMARY_CHARACTERS_MAX = 80
WHAT_PER_10_000_WORDS_MAX = 10
PRONOUNS_PER_1_000_WORDS_MAX = 1


def lines_with(pattern: str, folder: str, *, but: tuple[str, ...] = ()) -> list[str]:
    forbidden = re.compile(pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path, number, line in _lines(folder)
        if forbidden.search(line) and not (but and path.startswith(but))
    ]


def _lines(folder: str) -> Iterator[tuple[str, int, str]]:
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        if path != Path(__file__):
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                yield str(path.relative_to(REPOSITORY)), number, line


def test_no_file_has_a_note_of_unfinished_work() -> None:
    assert [] == lines_with(r"\b(TODO|FIXME|XXX|HACK)\b", "samzapy")


def test_only_the_command_line_prints() -> None:
    assert [] == lines_with(r"(?<![\w.])print\(", "samzapy", but=("samzapy/cli/", "samzapy/runtime/job_file.py"))


def test_unit_tests_do_not_sleep() -> None:
    sleeping = lines_with(r"\bsleep\(", "unit_tests")

    assert [] == [line for line in sleeping if line.partition(":")[0] not in SLOW_PEERS]


def test_unit_tests_replace_the_clock_of_one_module_only() -> None:
    """A thread of an earlier test may sleep in the same process.

    It would call a replacement of the common `time.sleep`, too.
    """
    replaced = lines_with(r"setattr\((?:(?:\w+\.)*time, |\"time\.)", "unit_tests")

    assert [] == [line for line in replaced if line.partition(":")[0] not in WHOLE_CLOCKS]


def test_every_schema_file_is_the_schema_of_a_record() -> None:
    files = [json.loads(path.read_text())["name"] for path in (REPOSITORY / "schemas").glob("*.avsc")]

    assert sorted(json.loads(schema.schema_json)["name"] for schema in schema_records()) == sorted(files)


def test_every_schema_that_ships_is_the_one_in_schemas() -> None:
    """`schemas` is a link to the package's files, so an export without links has them."""
    assert not (REPOSITORY / "samzapy" / "schemas").is_symlink()
    assert (REPOSITORY / "samzapy" / "schemas").resolve() == (REPOSITORY / "schemas").resolve()


def test_every_module_s_docstring_names_its_contents() -> None:
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


_SHELL = r"shell\s*=\s*True|\bos\.(system|popen)\b|\b(getoutput|getstatusoutput|create_subprocess_shell)\b"


def test_no_text_reaches_a_shell() -> None:
    """Programs start with a list of arguments, so no name of a host is a command.

    Nor is the name of a job.
    """
    # `os.system` is a hostile name of an action there.
    known = ("unit_tests/stream/test_placement.py",)

    assert [] == [line for folder in FOLDERS for line in lines_with(_SHELL, folder, but=known)]


@pytest.mark.parametrize(
    "line", ["subprocess.run(x, shell=True)", "os.system(x)", "os.popen(x)", "subprocess.getoutput(x)"]
)
def test_a_call_of_a_shell_is_detected(line: str) -> None:
    assert re.search(_SHELL, line)


# --- plain English ---


@pytest.mark.parametrize("part", PLAIN_ENGLISH)
def test_a_local_is_called_by_the_name_of_its_value(part: str) -> None:
    assert [] == [f"{path}:{line}" for path in _modules(part) for line in _locals_named(VAGUE_NAMES, _tree(path))]


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "def f(told): pass",
        "[word for word in line]",
        "if said := read(): pass",
        "match line:\n    case Put(value=found): pass",
    ],
)
def test_each_binding_of_a_vague_name_is_reported(code: str) -> None:
    assert list(_locals_named(VAGUE_NAMES, ast.parse(code)))


def test_a_vague_name_may_be_a_field_or_an_argument_of_a_call() -> None:
    code = "class Finding:\n    found: str\nfinding = Finding(found=1)\nfinding.told = 1"

    assert [] == list(_locals_named(VAGUE_NAMES, ast.parse(code)))


@pytest.mark.parametrize("part", TESTS)
def test_the_name_of_a_test_has_a_noun_as_its_subject(part: str) -> None:
    names = [
        node.name for path in _modules(part) for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef)
    ]

    assert [] == [name for name in names if name.startswith("test_") and PRONOUNS_IN_TEST_NAMES.search(name)]


@pytest.mark.parametrize("part", PLAIN_ENGLISH)
def test_a_docstring_begins_with_a_short_sentence_of_its_own(part: str) -> None:
    assert [] == [f"{place}: {text}" for path in _modules(part) for place, text in _bad_summaries(path)]


@pytest.mark.parametrize("part", PLAIN_ENGLISH)
def test_docstrings_and_comments_name_their_subjects(part: str) -> None:
    prose = " ".join(text for path in _modules(part) for text in _prose(path))
    words = len(re.findall(r"[A-Za-z][A-Za-z'’-]*", prose))
    what = len(re.findall(r"\bwhat\b", prose, re.IGNORECASE))
    pronouns = len(re.findall(r"\b(?:whoever|nobody|somebody)\b", prose, re.IGNORECASE))

    assert what * 10_000 <= WHAT_PER_10_000_WORDS_MAX * words, f"{what} times `what` in {words} words"
    assert pronouns * 1_000 <= PRONOUNS_PER_1_000_WORDS_MAX * words, f"{pronouns} pronouns in {words} words"


@pytest.mark.parametrize(
    ("summary", "is_good"),
    [
        ("The newest grant of each task.", True),
        ("Whether it ended (see `run`)." + " Or not.", True),
        (f"{'x' * SUMMARY_CHARACTERS_MAX}.", False),
        ("A sentence that goes on\nin the next line.", False),
        ("A text without an end", False),
    ],
)
def test_a_summary_is_one_line_that_ends(summary: str, is_good: bool) -> None:
    assert is_good is _is_summary(summary)


# --- sizes ---


def test_a_place_above_a_size_limit_has_a_reason() -> None:
    over = _measure_style().over_limits(list(_measure_style().modules_in(REPOSITORY / "samzapy")))

    places = {re.sub(r":\d+ (\w+): .*", r" \1", line.removeprefix(f"{REPOSITORY}/")) for line in over}
    assert places == ABOVE_A_LIMIT.keys(), "\n".join(over)


def test_each_limit_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "large.py"
    lines = ["def long():", *["    x = 1"] * 60]
    lines += [f"def wide({', '.join(f'p{number}' for number in range(9))}):", "    x = 1"]
    lines += ["def forked(x):", *["    if x: pass"] * 15]
    lines += ["class Many:", *[f"    def m{number}(self): pass" for number in range(26)]]
    lines += ["class Full:", "    def __init__(self):", *[f"        self.a{number} = 1" for number in range(16)]]
    path.write_text("\n".join(lines) + "\n")

    over = _measure_style().over_limits([_measure_style().measure(path)])

    assert [
        "long: 61 lines, at most 60",
        "wide: 9 parameters, at most 8",
        "forked: complexity 16, at most 15",
        "Many: 26 methods, at most 25",
        "Full: 16 attributes, at most 15",
    ] == [line.partition(" ")[2] for line in over]


@cache
def _measure_style() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_style", REPOSITORY / "scripts" / "measure_style.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["measure_style"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _modules(part: str) -> Sequence[Path]:
    path = REPOSITORY / part
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _locals_named(vague: frozenset[str], tree: ast.Module) -> Iterator[int]:
    nodes = list(ast.walk(tree))
    # A field `found` of a class is a part of an error's message.
    fields = {id(item.target) for node in nodes if isinstance(node, ast.ClassDef) for item in _annotated(node)}
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in vague and id(node) not in fields:
                yield node.lineno
            case ast.arg(arg=name) if name in vague:
                yield node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) if name in vague:
                yield node.lineno


def _annotated(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    return (item for item in node.body if isinstance(item, ast.AnnAssign))


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def _bad_summaries(path: Path) -> Iterator[tuple[str, str]]:
    for line, text in _docstrings(path):
        if not _is_summary(text):
            yield f"{path.relative_to(REPOSITORY)}:{line}", text.partition("\n")[0]


def _is_summary(docstring: str) -> bool:
    first, *rest = docstring.splitlines()
    ends = re.search(r"""[.!?:][)`"']*$""", first) is not None
    return ends and len(first) <= SUMMARY_CHARACTERS_MAX and not (rest and rest[0].strip())


def _prose(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        # Of modules, classes and functions, and of constants and fields.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
