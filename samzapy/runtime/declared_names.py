"""Checks literal names in a job file against the configuration before a start.

It checks `context.store("...")`, `context.intermediate("...")` and `collector.send("...", ...)` with a literal name, in
the marked function or in `process` and `init` of the marked class, by the names of their arguments. Two kinds of calls
are checked at run time only, with a named error at the first one (`errors.UndeclaredError`): those in a `try`, and
those under a condition that depends on more than the message (the configuration, `self`, a global).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

from samzapy.config import JobConfig
from samzapy.errors import TaskModuleError

_CONTEXT, _COLLECTOR = "context", "collector"
_ROLES: Mapping[str, Sequence[str]] = {"process": ("envelope", _COLLECTOR, _CONTEXT), "init": (_CONTEXT,)}


def check_names(job_file: Path, config: JobConfig) -> None:
    """Check the literal names in the task of a job file.

    Raises:
        TaskModuleError: a name is not declared.
    """
    problems = undeclared(job_file.read_bytes(), config)
    if problems:
        raise TaskModuleError("\n".join(f"{job_file}: {problem}" for problem in problems))


def undeclared(source: str | bytes, config: JobConfig) -> Sequence[str]:
    """Names in the task of `source` that the configuration does not declare, by line.

    Bytes are read as Python reads them, in the encoding that they name.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # Python has loaded the file, so only this reading of it fails.
        return []
    problem_of: dict[int, str] = {}
    for function, roles in _functions(tree):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        own = names[1:] if len(names) == len(roles) + 1 else names
        role_of = dict(zip(own, roles, strict=False))
        for call in _calls(function.body, _of_the_message(function, role_of)):
            problem = _problem(call, role_of, config)
            if problem:
                problem_of.setdefault(call.lineno, f"line {call.lineno}: {problem}")
    return [problem_of[line] for line in sorted(problem_of)]


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, Sequence[str]]]:
    """The marked function or methods, with the roles of their arguments."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _is_marked(node):
            yield node, _ROLES["process"]
        elif isinstance(node, ast.ClassDef) and _is_marked(node):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name in _ROLES:
                    yield method, _ROLES[method.name]


def _is_marked(node: ast.FunctionDef | ast.ClassDef) -> bool:
    names = (
        decorator.attr if isinstance(decorator, ast.Attribute) else decorator for decorator in node.decorator_list
    )
    return any(name == "task" or (isinstance(name, ast.Name) and name.id == "task") for name in names)


def _calls(nodes: Sequence[ast.AST], of_the_message: Set[str]) -> Iterator[ast.Call]:
    """The calls below `nodes` that the message alone decides about."""
    for node in nodes:
        if isinstance(node, ast.Try):
            continue
        test = _test(node)
        if test is not None and not _names(test) <= of_the_message:
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _calls(list(ast.iter_child_nodes(node)), of_the_message)


def _test(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.If() | ast.IfExp() | ast.While():
            return node.test
        case ast.Match():
            return node.subject
        case ast.match_case():
            return node.guard
        case ast.BoolOp():
            return node
    return None


def _of_the_message(function: ast.FunctionDef, role_of: Mapping[str, str]) -> Set[str]:
    """Names bound to the message, or to values made of it alone."""
    bound = {name for name, role in role_of.items() if role == "envelope"} | set(dir(builtins))
    made_of: dict[str, set[str]] = {}
    for name, value in _assigned(function):
        made_of.setdefault(name, set()).update(_names(value) - {name})
    while True:
        more = {name for name, names in made_of.items() if names <= bound} - bound
        if not more:
            return bound
        bound |= more


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((name, value) for target in targets for name in _names(target))
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from ((name, value) for name in _names(target))
            case ast.For(target=target, iter=value):
                yield from ((name, value) for name in _names(target))


def _names(node: ast.AST) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _problem(call: ast.Call, role_of: Mapping[str, str], config: JobConfig) -> str:
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return ""
    role, method = role_of.get(call.func.value.id), call.func.attr
    keyword = next((item.value for item in call.keywords if item.arg in ("name", "stream")), None)
    given = call.args[0] if call.args else keyword
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return ""
    match role, method:
        case "context", "store":
            return _undeclared_store(given.value, config)
        case "context", "intermediate":
            return _undeclared_intermediate(given.value, config)
        case "collector", "send":
            return _foreign_output(given.value, config)
    return ""


def _undeclared_store(name: str, config: JobConfig) -> str:
    stores = [store.name for store in config.stores]
    if name in stores:
        return ""
    return f"wanted store {name!r}, found {', '.join(stores) or 'none'}; declare it with stores.{name}.msg.serde=..."


def _undeclared_intermediate(name: str, config: JobConfig) -> str:
    intermediates = [item.name for item in config.intermediates]
    if name in intermediates:
        return ""
    return (
        f"wanted the intermediate stream {name!r}, found {', '.join(intermediates) or 'none'}; declare it with "
        f"task.intermediate.{name}.partitions=..."
    )


def _foreign_output(name: str, config: JobConfig) -> str:
    system, _, topic = config.qualified(name).partition(".")
    if topic and system == config.default_system:
        return ""
    return f"wanted an output stream of the job's cluster (kafka.orders), found {name!r}"
