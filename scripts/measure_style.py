#!/usr/bin/env python3
"""Measure the shape and language of Python packages, one Markdown row per folder.

    scripts/measure_style.py samzapy samzapy/coordinator
    scripts/measure_style.py --over        # the places above the limits of CONTRIBUTING.md

Needs the standard library only, so that any package can be measured: unpack its wheel and name the folder.
Figures of this repository and of others are in docs/internals/style.md.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8
COMPLEXITY_MAX = 15
METHODS_MAX = 25
ATTRIBUTES_MAX = 15
SUMMARY_CHARACTERS_MAX = 80

WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
WHO = re.compile(r"\b(who|whom|whose|whoever|nobody|somebody)\b", re.IGNORECASE)
WHOEVER = re.compile(r"\b(whoever|nobody|somebody)\b", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function: place, length in lines, number of parameters, complexity.

    The complexity is the cyclomatic one.
    """

    place: str
    lines: int
    parameters: int
    complexity: int
    builds_a_value: bool
    """Its body is one call: the parameters are the fields of a value, so their number has no limit."""


@dataclass(frozen=True, slots=True)
class Class:
    """A class: its place, methods and instance attributes.

    The fields of a frozen dataclass are not counted: they are a value's parts, often a schema's fields.
    """

    place: str
    methods: int
    attributes: int


@dataclass(slots=True)
class Module:
    """The counts of one file.

    `lines` are physical lines, `code` those without blank lines, comments and docstrings.
    """

    path: Path
    lines: int = 0
    code: int = 0
    docstring_lines: int = 0
    comment_lines: int = 0
    public_names: int = 0
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    long_summaries: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    bindings: int = 0


def measure(path: Path) -> Module:
    """Count one file. Raises SyntaxError when it is not Python of the running version."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    module = Module(path, lines=text.count("\n"))
    comments = [
        token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    whole_lines = [token for token in comments if token.line.strip().startswith("#")]
    module.comment_lines = len(whole_lines)
    module.prose += [token.string.lstrip("#! ") for token in comments]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            _add_docstring(module, node)
        if isinstance(node, _Function):
            module.functions.append(_function(path, node))
        if isinstance(node, ast.ClassDef):
            module.classes.append(_class(path, node))
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
            module.bindings += 1
            if (node.arg if isinstance(node, ast.arg) else node.id) == "found":
                module.found.append(f"{path}:{node.lineno}")
    blank = sum(not line.strip() for line in text.splitlines())
    module.code = max(1, module.lines - blank - module.docstring_lines - module.comment_lines)
    module.public_names = len(_public_names(tree))
    return module


def _add_docstring(module: Module, node: ast.Module | ast.ClassDef | _Function) -> None:
    if (docstring := ast.get_docstring(node)) is None:
        return
    expression = node.body[0]
    module.docstring_lines += (expression.end_lineno or expression.lineno) - expression.lineno + 1
    module.prose.append(docstring)
    if len(docstring.partition("\n")[0]) > SUMMARY_CHARACTERS_MAX:
        module.long_summaries.append(f"{module.path}:{expression.lineno}")


def _function(path: Path, node: _Function) -> Function:
    arguments = node.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    names += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    parameters = [name for name in names if name.arg not in ("self", "cls")]
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    place = f"{path}:{node.lineno} {node.name}"
    return Function(place, lines, len(parameters), complexity(node), _builds_a_value(node))


def _builds_a_value(node: _Function) -> bool:
    statements = [
        each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
    ]
    only = statements[0] if len(statements) == 1 else None
    return isinstance(only, ast.Return) and isinstance(only.value, ast.Call)


def complexity(function: _Function) -> int:
    """McCabe's number as radon counts it.

    Each branch counts, and each further operand of `and` and `or`.
    """
    count, nodes = 1, list(ast.iter_child_nodes(function))
    while nodes:
        node = nodes.pop()
        if isinstance(node, _Function | ast.ClassDef):
            continue  # It has a number of its own.
        count += isinstance(node, _BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        nodes += ast.iter_child_nodes(node)
    return count


def _class(path: Path, node: ast.ClassDef) -> Class:
    methods = [child for child in node.body if isinstance(child, _Function)]
    is_value = any("frozen=True" in ast.unparse(decorator) for decorator in node.decorator_list)
    fields = [] if is_value else [child for child in node.body if isinstance(child, ast.AnnAssign)]
    attributes = {child.target.id for child in fields if isinstance(child.target, ast.Name)}
    for method in methods:
        for inner in ast.walk(method):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and isinstance(inner.value, ast.Name)
                and inner.value.id == "self"
            ):
                attributes.add(inner.attr)
    return Class(f"{path}:{node.lineno} {node.name}", len(methods), len(attributes))


def _public_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | _Function):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def modules_in(folder: Path) -> Iterator[Module]:
    """Measure each Python file below a folder, or one file.

    Files that do not parse are named and left out.
    """
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*.py")):
        try:
            yield measure(path)
        except (SyntaxError, UnicodeDecodeError) as error:
            print(f"{path}: left out: {error}", file=sys.stderr)


HEADER = (
    "| package | files / lines | file median·p95·max | function median·p90·p95·max | parameters max | doc/code "
    "| comment/code | public names median·p95 | complexity mean, >10, >20 | `found` | what, who per 10,000 words |"
)


def row(name: str, modules: Sequence[Module]) -> str:
    """One row of the table in docs/internals/style.md."""
    files = sorted(module.lines for module in modules)
    functions = [function for module in modules for function in module.functions]
    lengths = sorted(function.lines for function in functions) or [0]
    numbers = [function.complexity for function in functions] or [0]
    code = sum(module.code for module in modules)
    names = sorted(module.public_names for module in modules)
    prose = " ".join(text for module in modules for text in module.prose)
    words = max(1, len(WORD.findall(prose)))
    cells = [
        name,
        f"{len(files)} / {sum(files) / 1000:.1f}k",
        f"{_at(files, 0.5)}·{_at(files, 0.95)}·{files[-1]}",
        f"{_at(lengths, 0.5)}·{_at(lengths, 0.9)}·{_at(lengths, 0.95)}·{lengths[-1]}",
        str(max((function.parameters for function in functions), default=0)),
        f"{sum(module.docstring_lines for module in modules) / code:.2f}",
        f"{sum(module.comment_lines for module in modules) / code:.3f}",
        f"{_at(names, 0.5)}·{_at(names, 0.95)}",
        f"{statistics.mean(numbers):.1f}, {sum(n > 10 for n in numbers)}, {sum(n > 20 for n in numbers)}",
        str(sum(len(module.found) for module in modules)),
        f"{len(WHAT.findall(prose)) * 10_000 / words:.0f}, {len(WHO.findall(prose)) * 10_000 / words:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _at(values: Sequence[int], share: float) -> int:
    return values[min(len(values) - 1, int(len(values) * share))]


def over_limits(modules: Sequence[Module]) -> list[str]:
    """Everything above a limit, each with its place."""
    over = []
    for module in modules:
        for function in module.functions:
            if function.lines > FUNCTION_LINES_MAX:
                over.append(f"{function.place}: {function.lines} lines, at most {FUNCTION_LINES_MAX}")
            if function.parameters > PARAMETERS_MAX and not function.builds_a_value:
                over.append(f"{function.place}: {function.parameters} parameters, at most {PARAMETERS_MAX}")
            if function.complexity > COMPLEXITY_MAX:
                over.append(f"{function.place}: complexity {function.complexity}, at most {COMPLEXITY_MAX}")
        for type_ in module.classes:
            if type_.methods > METHODS_MAX:
                over.append(f"{type_.place}: {type_.methods} methods, at most {METHODS_MAX}")
            if type_.attributes > ATTRIBUTES_MAX:
                over.append(f"{type_.place}: {type_.attributes} attributes, at most {ATTRIBUTES_MAX}")
    return over


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path("samzapy")])
    parser.add_argument(
        "--over", action="store_true", help="list the places above a limit, and exit 1 if there is one"
    )
    options = parser.parse_args()
    by_folder = {str(folder): list(modules_in(folder)) for folder in options.folders}
    if options.over:
        over = over_limits([module for modules in by_folder.values() for module in modules])
        print(*over, f"{len(over)} above a limit", sep="\n")
        sys.exit(bool(over))
    print(HEADER, "|---" * HEADER.count(" | ") + "|---|", sep="\n")
    for name, modules in by_folder.items():
        print(row(name, modules))


if __name__ == "__main__":
    main()
