"""The layer rule: which module may import which, read from the source without running it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "lmhead_course"
NAME = PACKAGE.name

# The import graph, and nothing else between modules. A folder is one node: its files may import each other.
# A new module is declared here first, with as few arrows as it can do with.
NUMERIC = {
    "projection",
    "softmax",
    "selection",
    "processors",
    "masks",
    "sampling",
    "generation",
    "beams",
    "speculative",
    "scoring",
    "studies",
    "statistics",
    "pathway",
    "tying",
    "tiny",
    "twins",
    "loss",
    "evaluation",
    "calibration",
    "characters",
    "cost",
    "catalog",
    "machine",
    "quantise",
    "trimming",
    "lens",
}
GRAPH = {
    "projection": set(),
    "softmax": set(),
    "selection": set(),
    "catalog": set(),
    "llama": set(),
    "statistics": set(),
    "escaping": set(),
    "pathway": {"escaping"},
    "tokens": {"escaping"},
    "streaming": set(),
    "tables": {"escaping"},
    "toy": set(),
    "texts": set(),
    "figures": {"escaping"},
    "memory": set(),
    "records": set(),
    "fetch": {"memory"},
    "server": set(),  # loaded by the Jupyter server, never by a kernel
    "convert": set(),  # run as a script in a process of its own
    "protocol": {"projection"},
    "processors": {"softmax", "selection"},
    "masks": {"processors"},
    "sampling": {"processors", "softmax", "selection"},
    "generation": {"sampling", "softmax", "streaming", "protocol"},
    "beams": {"generation", "softmax", "protocol"},
    "speculative": {"generation", "sampling", "softmax", "streaming", "protocol"},
    "scoring": {"generation", "sampling", "streaming", "protocol"},
    "studies": {"generation", "sampling", "protocol", "records"},
    "loss": {"softmax"},
    "evaluation": {"loss", "protocol"},
    "calibration": {"softmax"},
    "characters": {"loss", "softmax"},
    "tying": {"projection", "loss"},
    "tiny": {"projection", "tokens"},
    "twins": {"tiny", "tying", "loss", "records"},
    "cost": {"catalog"},
    "machine": {"memory"},
    "peaks": {"loss", "memory"},
    "parallel": {"memory"},  # its functions run in processes of their own
    "quantise": set(),
    "trimming": set(),
    "lens": {"softmax", "protocol"},
    "highlight": {"escaping"},
    "models": {"projection", "llama", "fetch", "memory", "tokens", "protocol"},
    "checks": NUMERIC | {"escaping", "progress", "toy"},
    "progress": set(),
    "overview": {"checks", "progress", "escaping"},
    "restore": set(),
    "storage": {"fetch", "progress", "tables"},
    "explorers": NUMERIC | {"escaping", "figures", "checks", "protocol", "tables", "tokens", "toy"},
}

# Other people's packages that only these modules may import at all ...
ONLY_IN = {
    "transformers": {"models", "fetch", "convert"},
    "gguf": {"models", "fetch", "convert"},
    "plotly": {"figures", "explorers"},
    "ipywidgets": {"explorers", "checks"},
    "anywidget": {"explorers"},
    "IPython": {"explorers", "checks"},
}
# ... and those that are slow to import, so that they are never imported before they are needed.
LAZY = {"transformers", "gguf"}


def resolve(node: ast.AST, package: list[str]) -> Iterator[str]:
    """Yield the full dotted names that an import statement, or import_module("..."), asks for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        start = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{start}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = getattr(node.func, "attr", getattr(node.func, "id", None))
        if function in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            target = node.args[0].value
            level = len(target) - len(target.lstrip("."))
            base = package[: len(package) - level + 1] if level else []
            yield ".".join([*base, target.lstrip(".")])


def imports(tree: ast.AST, package: list[str], at_import: bool = True) -> Iterator[tuple[str, int, bool]]:
    """Yield (name, line, whether it happens when the module is imported) for every import under `tree`."""
    for node in ast.iter_child_nodes(tree):
        yield from ((name, node.lineno, at_import) for name in resolve(node, package))
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(node, package, at_import and not inside)


def complaints(root: Path, graph: dict[str, set[str]] = GRAPH) -> list[str]:
    """Check every module below `root` against `graph`; an empty list means that the layer rule holds."""
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts == ("__init__",):  # the public door may name every module
            found += foreign_complaints(path, NAME, parts)
        elif parts[0] not in graph:
            found.append(f"{parts[0]} is not declared in the import graph")
        else:
            found += own_complaints(path, parts, graph, nodes_of(root))
            found += foreign_complaints(path, parts[0], parts)
    return found


def nodes_of(root: Path) -> set[str]:
    """Return the nodes that exist below `root`: its modules and folders."""
    return {path.relative_to(root).with_suffix("").parts[0] for path in root.rglob("*.py")} - {"__init__"}


def parsed(path: Path, parts: tuple[str, ...]) -> Iterator[tuple[str, int, bool]]:
    """Yield the imports of one file, with relative names made full."""
    yield from imports(ast.parse(path.read_text(encoding="utf-8")), [NAME, *parts[:-1]])


def own_complaints(path, parts, graph, nodes) -> Iterator[str]:
    """Compare one file's imports of our own modules with the arrows of its node."""
    for name, line, _ in parsed(path, parts):
        top, *rest = name.split(".")
        if top != NAME:
            continue
        target = rest[0] if rest and rest[0] in nodes | graph.keys() else None
        where = f"{'/'.join(parts)}.py:{line}"
        if target is None:
            yield f"{where} imports through the package's door; name the module instead"
        elif target != parts[0] and target not in graph[parts[0]]:
            yield f"{where} imports {target}, which {parts[0]} may not"


def foreign_complaints(path, node, parts) -> Iterator[str]:
    """Check where the heavy packages of other people are imported, and when."""
    for name, line, at_import in parsed(path, parts):
        top = name.split(".")[0]
        where = f"{'/'.join(parts)}.py:{line}"
        if node not in ONLY_IN.get(top, {node}):
            yield f"{where} imports {top}, which only {' and '.join(sorted(ONLY_IN[top]))} may"
        elif top in LAZY and at_import:
            yield f"{where} imports {top} outside a function"


def written(root: Path, files: dict[str, str] | None = None, **modules: str) -> Path:
    """Write a small package: written(root, softmax="import torch"), or {"explorers/one": "..."} in a folder."""
    for name, text in {**(files or {}), **modules}.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_package_keeps_to_its_import_graph():
    assert nodes_of(PACKAGE), "no module found: is the checker looking in the right place?"
    assert complaints(PACKAGE) == []


def test_the_graph_itself_has_no_circle():
    done: set[str] = set()
    while ready := {node for node, targets in GRAPH.items() if targets <= done} - done:
        done |= ready
    assert done == GRAPH.keys()


@pytest.mark.parametrize(
    "line",
    [
        "from .sampling import sample",
        "from . import sampling",
        "import lmhead_course.sampling",
        "from lmhead_course import sampling",
        "from lmhead_course.sampling import sample",
        "def f():\n    from .sampling import sample",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .sampling import sample",
        "import importlib\nimportlib.import_module('.sampling', __package__)",
        "from importlib import import_module\nimport_module('lmhead_course.sampling')",
    ],
)
def test_a_forbidden_import_is_seen_however_it_is_written(tmp_path, line):
    (complaint,) = complaints(written(tmp_path, softmax=line))
    assert "imports sampling, which softmax may not" in complaint


def test_an_allowed_import_passes(tmp_path):
    files = {"sampling": "from .softmax import softmax", "explorers/one": "from ..figures import bars"}
    assert complaints(written(tmp_path, files)) == []


def test_explorers_may_use_each_other_but_never_the_models(tmp_path):
    written(tmp_path, {"explorers/one": "from .two import x\nfrom . import two", "explorers/two": ""})
    assert complaints(tmp_path) == []
    written(tmp_path, {"explorers/two": "from ..models import load_model\nfrom lmhead_course import llama"})
    assert [c.partition("imports ")[2] for c in complaints(tmp_path)] == [
        "models, which explorers may not",
        "llama, which explorers may not",
    ]


def test_a_module_that_is_not_declared_is_named(tmp_path):
    assert complaints(written(tmp_path, helpers="")) == ["helpers is not declared in the import graph"]


@pytest.mark.parametrize("line", ["from . import sample", "from lmhead_course import sample"])
def test_going_through_the_public_door_is_refused_because_it_hides_the_arrow(tmp_path, line):
    (complaint,) = complaints(written(tmp_path, softmax=line))
    assert "door" in complaint


@pytest.mark.parametrize("package", sorted(LAZY))
def test_slow_packages_are_imported_in_functions_of_the_modules_that_load_models(tmp_path, package):
    assert complaints(written(tmp_path, models=f"def f():\n    import {package}.x")) == []
    (outside,) = complaints(
        written(tmp_path, models=f"try:\n    import {package}\nexcept OSError:\n    pass")
    )
    assert "outside a function" in outside
    (elsewhere,) = complaints(written(tmp_path, models="", loss=f"def f():\n    from {package} import x"))
    assert "only convert and fetch and models may" in elsewhere


def test_the_public_door_may_name_every_module_but_no_slow_package(tmp_path):
    written(tmp_path, __init__="from .models import load_model", models="")
    assert complaints(tmp_path) == []
    (complaint,) = complaints(written(tmp_path, __init__="import transformers"))
    assert "transformers" in complaint


def modules_after(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter holds after `statement`."""
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=PACKAGE.parent,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", [NAME, f"{NAME}.models"])
def test_importing_the_package_brings_in_nothing_slow(module):
    loaded = modules_after(f"import {module}")
    assert NAME in loaded
    assert not loaded & {"transformers", "gguf", "plotly", "ipywidgets", "beartype"}
