from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_the_packages_know_only_what_lies_below_them() -> None:
    """The contracts stand in `setup.cfg`; the output names the import that breaks one."""
    ran = subprocess.run(
        [sys.executable, "-c", LINT, "--config", "setup.cfg", "--no-logo", "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


LOADERS = {"pickle", "marshal", "shelve", "importlib", "runpy", "subprocess"}
READERS = ("stream", "coordinator", "inspection", "container", "model", "plan", "adapters/kafka", "adapters/web")


def test_modules_that_read_foreign_bytes_load_no_code() -> None:
    """Invariant L10: bytes of a topic or of an HTTP body choose no module, no class and no command."""
    loaders = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for folder in READERS
        for path in sorted((REPOSITORY / "samzapy" / folder).rglob("*.py"))
        for name in _loaders_in(ast.parse(path.read_text()))
    ]

    # The schemas are files of the package.
    assert ["samzapy/stream/single_object.py: importlib.resources"] == loaders


def _loaders_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LOADERS:
            yield f"{node.module}.{node.names[0].name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("eval", "exec", "__import__"):
            yield ast.unparse(node.func)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {module: _imports(path, module) for path, module in _modules("samzapy", "simulation")}

    assert [] == _circles({module: imported & graph.keys() for module, imported in graph.items()})


def test_a_circle_is_found() -> None:
    assert [{"a", "b"}] == _circles({"a": {"b"}, "b": {"a", "c"}, "c": set()})


def _modules(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, module: str) -> set[str]:
    """The modules that a module imports while it is imported itself, not those that a function imports later."""
    imported: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            imported |= names | {node.module or ""}
    return imported - {module}


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules that each import each other, directly or by way of others."""
    left = {module: set(imported) for module, imported in graph.items()}
    while leaves := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in leaves:
            del left[module]
    while roots := [module for module in left if not any(module in imported for imported in left.values())]:
        for module in roots:
            del left[module]
    return [set(left)] if left else []
