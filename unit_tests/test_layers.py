from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

REPOSITORY = Path(__file__).parent.parent
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_the_packages_know_only_the_layers_below_them() -> None:
    """The contracts are in `setup.cfg`; the output names the import that breaks one."""
    ran = subprocess.run(
        [sys.executable, "-c", LINT, "--config", "setup.cfg", "--no-logo", "--no-cache"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )

    assert 0 == ran.returncode, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


CONTRACTS = read_configuration(str(REPOSITORY / "setup.cfg"))
TYPES: dict[str, type[Contract]] = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "acyclic_siblings": AcyclicSiblingsContract,
}
# One import per contract that it must refuse; the contract is named by its id in `setup.cfg`.
REFUSED = [
    ("map", "samzapy.inspection.status", "samzapy.adapters.kafka.log"),
    ("map", "samzapy.coordinator.service", "samzapy.container.service"),
    ("map", "samzapy.adapters.web.routes", "samzapy.runtime.leadership"),
    ("production", "samzapy.runtime.container_process", "samzapy.testing.broker"),
    ("tools", "samzapy.cli.doctor.examination", "samzapy.testing.broker"),
    ("production", "samzapy.runtime.job_file", "samzapy.cli.run"),
    ("public", "samzapy", "samzapy.cli.main"),
    ("public", "samzapy.audit", "samzapy.cli.stream.source"),
    ("public", "samzapy.runtime.job_file", "samzapy.cli.run"),
    ("ships", "samzapy.cli.dev.group", "simulation"),
    ("adapters", "samzapy.adapters.web.routes", "samzapy.adapters.kafka.log"),
    ("pure", "samzapy.coordinator.decide", "time"),
    ("pure", "samzapy.inspection.load", "time"),
    ("circles", "samzapy.model.ssp", "samzapy.model.startpoint"),
    ("circles", "samzapy.coordinator.requests.handler", "samzapy.coordinator.requests.rewind"),
    ("coordinator", "samzapy.coordinator.decide", "samzapy.coordinator.actions"),
    ("coordinator", "samzapy.coordinator.decide", "samzapy.coordinator.service"),
    ("coordinator", "samzapy.coordinator.action_performer", "samzapy.coordinator.service"),
    ("coordinator", "samzapy.coordinator.action_performer", "samzapy.coordinator.leader_log"),
    ("coordinator", "samzapy.coordinator.requests.handler", "samzapy.coordinator.lifecycle.submission"),
    ("coordinator", "samzapy.coordinator.launching.hosts", "samzapy.coordinator.inputs.growth"),
    ("coordinator", "samzapy.coordinator.launching.hosts", "samzapy.coordinator.requests.handler"),
    ("coordinator", "samzapy.coordinator.assignment.starts", "samzapy.coordinator.launching.launches"),
    ("coordinator", "samzapy.coordinator.state", "samzapy.coordinator.assignment.grants"),
    ("container", "samzapy.container.local_state.restore", "samzapy.container.service"),
    ("container", "samzapy.container.startup", "samzapy.container.warm_up"),
    ("container", "samzapy.container.ownership", "samzapy.container.idle_progress"),
    ("container", "samzapy.container.task.runner", "samzapy.container.ports"),
    ("container", "samzapy.container.task.stores", "samzapy.container.local_state.restore"),
    ("worker", "samzapy.runtime.worker_process", "samzapy.container.local_state.restore"),
    ("commands", "samzapy.cli.doctor.examination", "samzapy.cli.job.planning"),
    ("commands", "samzapy.cli.container.group", "samzapy.cli.stream.group"),
    ("commands", "samzapy.cli.output.failures", "samzapy.cli.main"),
    ("commands", "samzapy.cli.target.address", "samzapy.cli.stream.group"),
    ("commands", "samzapy.cli.output.table", "samzapy.cli.target.address"),
]


@pytest.fixture(scope="module")
def imports() -> ImportGraph:
    return build_graph("samzapy", include_external_packages=True, cache_dir=None)


def kept(contract_id: str, imports: ImportGraph) -> bool:
    (options,) = (options for options in CONTRACTS["contracts_options"] if options["id"] == contract_id)
    contract = TYPES[options["type"]](options["name"], CONTRACTS["session_options"], options)
    return contract.check(imports, verbose=False).kept


@pytest.mark.parametrize(("contract", "importer", "imported"), REFUSED)
def test_a_contract_refuses_an_import_that_leads_up(
    imports: ImportGraph, contract: str, importer: str, imported: str
) -> None:
    """Each contract can fail: the graph of today's imports with one more breaks it."""
    changed = deepcopy(imports)
    for module in (importer, imported):
        if module not in changed.modules:
            changed.add_module(module, is_squashed=True)
    assert kept(contract, imports)

    changed.add_import(importer=importer, imported=imported)

    assert not kept(contract, changed)


def test_every_contract_has_an_import_that_it_refuses() -> None:
    assert {options["id"] for options in CONTRACTS["contracts_options"]} == {contract for contract, _, _ in REFUSED}


def test_a_new_module_must_be_given_a_place(imports: ImportGraph) -> None:
    for contract, module in (
        ("coordinator", "samzapy.coordinator.unplaced"),
        ("container", "samzapy.container.unplaced"),
        ("commands", "samzapy.cli.unplaced"),
    ):
        changed = deepcopy(imports)
        changed.add_module(module)
        assert not kept(contract, changed), contract


PUBLIC = "import samzapy, samzapy.audit, samzapy.placement, samzapy.runtime.job_file"


def test_the_imports_of_a_job_file_load_neither_the_command_line_nor_test_tools() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", f"{PUBLIC}, sys; print(*sys.modules)"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    assert "samzapy.runtime.job_file" in loaded
    assert [] == [name for name in loaded if name.startswith(("samzapy.cli", "samzapy.testing", "simulation"))]


LOADERS = {"pickle", "marshal", "shelve", "importlib", "runpy", "subprocess"}
READERS = ("stream", "coordinator", "inspection", "container", "model", "plan", "adapters/kafka", "adapters/web")


def test_modules_that_read_foreign_bytes_load_no_code() -> None:
    """Invariant L10: bytes from a topic or HTTP choose no module, class or command."""
    loaders = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for folder in READERS
        for path in sorted((REPOSITORY / "samzapy" / folder).rglob("*.py"))
        for name in _loaders_in(ast.parse(path.read_text()))
    ]

    # The schemas, and the templates of the page, are files of the package.
    readers = ("samzapy/stream/single_object.py", "samzapy/adapters/web/page_rendering.py")
    assert sorted(f"{reader}: importlib.resources" for reader in readers) == sorted(loaders)


def test_modules_that_read_foreign_bytes_read_json_by_the_strict_reader() -> None:
    """`json.loads` takes text that is no JSON, and values nested too deep to write."""
    readers = [
        str(path.relative_to(REPOSITORY))
        for folder in READERS
        for path in sorted((REPOSITORY / "samzapy" / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "json.load")
    ]

    # Both read schemas of this package.
    assert ["samzapy/stream/export.py", "samzapy/stream/single_object.py"] == readers


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


def test_a_circle_is_reported() -> None:
    assert [{"a", "b"}] == _circles({"a": {"b"}, "b": {"a", "c"}, "c": set()})


def _modules(*folders: str) -> Iterator[tuple[Path, str]]:
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            yield path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, module: str) -> set[str]:
    """The modules that are imported at import time, not those inside functions."""
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
