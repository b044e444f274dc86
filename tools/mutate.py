"""Would the tests notice a small mistake? Make many, one at a time, in a copy, and run the tests that concern it.

    python tools/mutate.py                      all mutants of the modules below, and a table
    python tools/mutate.py --sample 24          so many of them, evenly spread: two minutes
    python tools/mutate.py softmax              those of one module
    python tools/mutate.py --report             all, and 20,000 inputs of tests/test_conformance.py; writes both into
                                                docs/correctness.md (an hour; with names only those parts)

It fails when a mutant survives that ``equivalent_mutants.toml`` does not explain. A mutant is one change of one
expression or statement: another comparison or operator, a number one larger, a condition turned round, an argument
or a call left out. Importing torch takes seconds, so this process imports what the tests need, and forks for each
mutant; the package itself is imported in the child, changed. (The tools of PyPI run each mutant in a new process, or
wrap every function, which the import hook that checks our annotations does not see through.)
"""

import argparse
import ast
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXPLAINED = ROOT / "tools" / "equivalent_mutants.toml"
REPORT = ROOT / "docs" / "correctness.md"
TESTS = {
    "softmax": ["test_softmax.py"],
    "processors": ["test_processors.py", "test_conformance.py", "test_sampling.py"],
    "selection": ["test_selection.py", "test_processors.py", "test_conformance.py", "test_sampling.py"],
    "sampling": ["test_sampling.py", "test_ranked_logits.py", "test_conformance.py"],
    "loss": ["test_loss.py"],
    "generation": ["test_generation.py"],
}
"""The tests of each module, the quickest first: they run until one fails."""
WARM = ["torch", "numpy", "pytest", "hypothesis", "jaxtyping", "beartype"]
WARM += ["transformers.generation.logits_process"]
FEWER = ["--conformance=600"]
TIME_LIMIT = 180

SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "/", ast.Mod: "//", ast.Pow: "*",
    ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or", ast.Or: "and",
}  # fmt: skip
OPPOSITES = {"min": "max", "amin": "amax", "argmax": "argmin", "all": "any", "zeros_like": "ones_like"}
OPPOSITES |= {"minimum": "maximum", "new_zeros": "new_ones", "zeros": "ones"}
OPPOSITES |= {there: here for here, there in OPPOSITES.items()}
DROPPED = {
    *(
        "clone",
        "detach",
        "clamp",
        "masked_fill",
        "masked_fill_",
        "float",
        "double",
        "long",
        "to",
        "log",
        "exp",
        "exp_",
    ),
    *(
        "sub_",
        "mul_",
        "square",
        "roll",
        "unsqueeze",
        "squeeze",
        "abs",
        "isfinite",
        "cpu",
        "flatten",
        "ceil",
        "strip",
    ),
}
"""Methods that a mutant leaves out: x.clone() becomes x."""


QUIET = {"device", "strict"}
"""Keywords that stay: the tests run on one device, and ``zip(strict=True)`` guards against what is not so."""


@dataclass(frozen=True)
class Mutant:
    """A module's source with one change; ``before`` and ``after`` are the lines that it changes."""

    module: str
    line: int
    before: str
    after: str
    source: bytes

    def __str__(self):
        return f"{self.module}.py:{self.line}: {self.before}  →  {self.after}"


# ---- the changes --------------------------------------------------------------------------------------------------


def mutants(module: str) -> list[Mutant]:
    """Return every mutant of a module of the package that is another program."""
    return list(_mutants(module, (ROOT / "lmhead_course" / f"{module}.py").read_bytes()))


@lru_cache
def _mutants(module: str, source: bytes) -> tuple[Mutant, ...]:
    found = {}
    for node in _mutable(ast.parse(source)):
        for start, end, text in _changes(node, source):
            changed = source[:start] + text.encode() + source[end:]
            if _parses(changed):
                found.setdefault(changed, _described(module, source, start, end, text, changed))
    return tuple(found.values())


def _mutable(tree: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes inside functions, without annotations, docstrings, decorators and what an error says."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(tree, (ast.FunctionDef, ast.ClassDef)) and node not in tree.body:
            continue
        if isinstance(tree, ast.keyword) and tree.arg in {
            "dim",
            "keepdim",
            *QUIET,
        }:  # leaving them out is enough
            continue
        here = inside or isinstance(tree, (ast.FunctionDef, ast.Lambda))
        if here:
            yield node
        if isinstance(node, ast.AnnAssign):
            yield from _mutable(ast.Expression(node.value), here) if node.value else ()
        else:
            yield from _mutable(node, here)


def _changes(node: ast.AST, source: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the changes of one node: what to put from where to where, in bytes."""
    match node:
        case ast.UnaryOp(operand=operand):
            yield (*_span(source, node), _text(source, operand))
        case ast.Constant(value=bool(value)):
            yield (*_span(source, node), str(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield (*_span(source, node), f"({value} + 1)")
        case (
            ast.If(test=test)
            | ast.IfExp(test=test)
            | ast.While(test=test)
            | ast.comprehension(ifs=[test, *_])
        ):
            yield (*_span(source, test), f"(not ({_text(source, test)}))")
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Subscript()]) | ast.AugAssign():
            yield (*_span(source, node), "pass")
        case ast.Call():
            yield from _changes_of_call(node, source)
    yield from _other_operators(node, source)


def _other_operators(node: ast.AST, source: bytes) -> Iterator[tuple[int, int, str]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield _between(source, left, right, SWAPS[type(op)])
        case ast.Compare(left=left, ops=[op, other], comparators=[middle, right]):
            yield _between(source, left, middle, SWAPS[type(op)])
            yield _between(source, middle, right, SWAPS[type(other)])
        case ast.BinOp(left=left, op=op, right=right) | ast.BoolOp(op=op, values=[left, right, *_]):
            if type(op) in SWAPS:
                yield _between(source, left, right, SWAPS[type(op)])
        case ast.AugAssign(target=target, op=op, value=value):
            yield _between(source, target, value, SWAPS[type(op)] + "=")


def _changes_of_call(call: ast.Call, source: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the call by its opposite, without one of its keywords, or left out."""
    name, start = getattr(call.func, "attr", getattr(call.func, "id", "")), _span(source, call)[0]
    if name in OPPOSITES:
        end = _span(source, call.func)[1]
        yield end - len(name), end, OPPOSITES[name]
    if name in DROPPED and isinstance(call.func, ast.Attribute):
        end = _span(source, call.func)[1] - len(name)
        yield start, _span(source, call)[1], source[start:end].decode().rstrip().removesuffix(".")
    for keyword in call.keywords:
        if keyword.arg and keyword.arg not in QUIET:
            left, right = _span(source, keyword)
            comma = re.compile(rb",\s*").match(source, right)
            yield left, comma.end() if comma else right, ""
    if name == "where" and len(call.args) == 3:
        yield start, _span(source, call)[1], _text(source, call.args[1])


@lru_cache(maxsize=1)
def _line_starts(source: bytes) -> list[int]:
    return [0, *(found.end() for found in re.finditer(rb"\n", source))]


def _span(source: bytes, node: ast.AST) -> tuple[int, int]:
    starts = _line_starts(source)
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def _text(source: bytes, node: ast.AST) -> str:
    start, end = _span(source, node)
    return source[start:end].decode()


def _between(source: bytes, left: ast.AST, right: ast.AST, operator: str) -> tuple[int, int, str]:
    """Another operator between two operands; brackets of theirs stay."""
    start, end = _span(source, left)[1], _span(source, right)[0]
    gap = source[start:end].decode()
    return start, end, re.sub(r"[^\s()]+( (in|not))?", lambda _: operator, gap, count=1)


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _described(module: str, source: bytes, start: int, end: int, text: str, changed: bytes) -> Mutant:
    """Say the change by the whole lines that it touches."""
    first, last = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end)
    shift = len(text.encode()) - (end - start)
    before, after = _lines(source[first:last]), _lines(changed[first : last + shift])
    return Mutant(module, source.count(b"\n", 0, start) + 1, before, after, changed)


def _lines(source: bytes) -> str:
    """Whole lines in one, without comments."""
    return " ".join(" ".join(re.sub(r"\s# .*", "", line).split()) for line in source.decode().splitlines())


def explained() -> dict[tuple[str, str, str], str]:
    """Return the mutants that no test can kill, with the reason, by module and lines."""
    entries = tomllib.loads(EXPLAINED.read_text()).get("mutant", []) if EXPLAINED.exists() else []
    return {(one["module"], one["before"], one["after"]): one["why"] for one in entries}


# ---- running ------------------------------------------------------------------------------------------------------


class Workshop:
    """A copy of the package and its tests, and one process that has imported what they need."""

    def __init__(self, folder: Path):
        self.folder = folder
        for name in ("lmhead_course", "tests"):
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "browser")
            )
        shutil.copy(ROOT / "pyproject.toml", folder)
        sys.path.insert(0, str(folder))
        # CI: hypothesis then draws the same examples every time. One thread: a fork would lose the others.
        os.environ |= {"CI": "true", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        for name in WARM:
            importlib.import_module(name)
        gc.freeze()

    def survives(self, mutant: Mutant) -> bool:
        """Run the tests of a mutant's module until one fails."""
        file = self.folder / "lmhead_course" / f"{mutant.module}.py"
        original = file.read_bytes()
        self._write(file, mutant.source)
        try:
            return self.passes(TESTS[mutant.module])
        finally:
            self._write(file, original)

    def _write(self, file: Path, source: bytes) -> None:
        """Write a module and forget its bytecode: that is told by the second and the size alone."""
        for cached in file.parent.glob(f"__pycache__/{file.stem}.*"):
            cached.unlink()
        file.write_bytes(source)

    def passes(self, files: list[str], limit: float = TIME_LIMIT) -> bool:
        """Run these tests in a child; a run that takes too long has failed."""
        child = os.fork()
        if child == 0:
            self._test(files)
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status) == 0
            time.sleep(0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _test(self, files: list[str]) -> None:
        """In the child: run the tests and leave with pytest's exit status."""
        import pytest

        os.chdir(self.folder)
        quiet = os.open(self.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        options = ["-x", "-q", "--tb=line", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:nbval"]
        status = 1
        try:
            status = int(
                pytest.main(
                    [*options, *FEWER, *(f"tests/{name}" for name in files)],
                    plugins=[KillersFirst(self.folder)],
                )
            )
        finally:
            os._exit(status)


class KillersFirst:
    """A plugin that leaves out the tests of the downloaded model, which take minutes, and starts with the tests that
    failed for other mutants, the latest first: the next line's mutant is often killed by the same."""

    def __init__(self, folder: Path):
        self.file = folder / "killers.txt"
        self.killers = self.file.read_text().splitlines() if self.file.exists() else []

    def pytest_sessionstart(self):
        """Have hypothesis stop at its first failing example: looking for a simpler one takes minutes."""
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("first failure", settings.get_profile("ci"), phases=phases)
        settings.load_profile("first failure")

    def pytest_collection_modifyitems(self, items):
        """Choose and sort the tests."""
        kept = [item for item in items if not {"lm", "peer"} & set(item.fixturenames)]
        rank = {killer: place for place, killer in enumerate(reversed(self.killers))}
        items[:] = sorted(kept, key=lambda item: rank.get(item.nodeid, len(rank)))

    def pytest_runtest_logreport(self, report):
        """Remember the test that failed."""
        if report.failed:
            others = [killer for killer in self.killers if killer != report.nodeid]
            self.file.write_text("\n".join([*others, report.nodeid]))


def run(chosen: list[Mutant]) -> tuple[Counter, list[Mutant]]:
    """Return how many mutants each module had, and those that survived; fail unless the tests pass unchanged."""
    counts, survivors = Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        files = dict.fromkeys(name for mutant in chosen for name in TESTS[mutant.module])
        if not workshop.passes(list(files), limit=5 * TIME_LIMIT):
            sys.exit(
                f"tests fail without any change:\n{(workshop.folder / 'output.txt').read_text()[-3000:]}"
            )
        for mutant in chosen:
            started = time.monotonic()
            alive = workshop.survives(mutant)
            counts[mutant.module] += 1
            survivors += [mutant] if alive else []
            print(
                f"{'SURVIVED' if alive else 'killed'} {time.monotonic() - started:5.1f} s  {mutant}",
                flush=True,
            )
    return counts, survivors


# ---- the report ---------------------------------------------------------------------------------------------------


def written(report: str, part: str, text: str) -> str:
    """Return the report with the text between the marks of a part."""
    pattern = rf"(<!-- {part} -->\n).*?(<!-- end of {part} -->)"
    if not re.search(pattern, report, flags=re.DOTALL):
        raise ValueError(f"{REPORT.name} has no marks for {part}")
    return re.sub(pattern, lambda found: found[1] + text + found[2], report, flags=re.DOTALL)


def report_conformance() -> None:
    """Compare 20,000 inputs and write the table of them."""
    command = [sys.executable, "-m", "pytest", "-q", "tests/test_conformance.py", "--conformance=20000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    table = "".join(line + "\n" for line in done.stdout.splitlines() if line.startswith("|"))
    REPORT.write_text(written(REPORT.read_text(), "conformance", "\n" + table + "\n"))


def report_mutants(counts: Counter, survivors: list[Mutant], known: dict) -> None:
    """Write each module's row, and the list of the mutants that nothing can kill."""
    text = REPORT.read_text()
    for module, number in counts.items():
        alive = [m for m in survivors if m.module == module]
        equivalent = sum((m.module, m.before, m.after) in known for m in alive)
        figures = (len(mutants(module)), number, number - len(alive), equivalent, len(alive) - equivalent)
        row = f"| `{module}.py` | " + " | ".join(map(str, figures)) + " |"
        text = re.sub(rf"(?m)^\| `{module}\.py` \|.*$", row, text)
    lines = [
        f"- `{module}.py`: `{before}` → `{after}`  \n  {why}\n"
        for (module, before, after), why in known.items()
    ]
    REPORT.write_text(written(text, "equivalent mutants", "\n" + "".join(lines) + "\n"))


def main() -> None:
    """Run what was asked for; exit with 1 if a mutant survived that nobody explained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(TESTS)}, and conformance with --report")
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants, evenly spread")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("--report", action="store_true", help=f"write into {REPORT.relative_to(ROOT)}")
    asked = parser.parse_args()
    parts = [*TESTS, "conformance"] if asked.report else [*TESTS]
    if unknown := sorted({*asked.parts} - {*parts}):
        parser.error(f"unknown parts {unknown}: choose from {', '.join(parts)}")
    known = explained()
    chosen = [m for module in TESTS if module in (asked.parts or TESTS) for m in mutants(module)]
    if asked.sample:
        unexplained = [m for m in chosen if (m.module, m.before, m.after) not in known]
        chosen = unexplained[:: max(1, len(unexplained) // asked.sample)][: asked.sample]
    if asked.list:
        print(*chosen, sep="\n")
        return
    if asked.report and "conformance" in (asked.parts or ["conformance"]):
        report_conformance()
    counts, survivors = run(chosen) if chosen else (Counter(), [])
    unexplained = [m for m in survivors if (m.module, m.before, m.after) not in known]
    if asked.report:
        report_mutants(counts, survivors, known)
    print(f"{counts.total()} mutants, {len(survivors)} survived, {len(unexplained)} of them unexplained")
    if unexplained:
        sys.exit("\n".join(map(str, unexplained)))


if __name__ == "__main__":
    main()
