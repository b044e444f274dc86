"""The notebooks as they are stored: run, small, readable, and really compared by pytest --nbval."""

import ast
import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.store_notebooks import KERNEL, PLACEHOLDER, PLACEHOLDER_OF_MACHINE, WIDGET, execute, tidy, write

ROOT = Path(__file__).resolve().parents[1]
PATHS = sorted(path for path in (ROOT / "notebooks").glob("*.ipynb") if ".mine-" not in path.name)

LONGEST_CELL, LONG_CELL, SHARE_OF_SHORT_CELLS = 25, 15, 0.9
LONGEST_FUNCTION = 10
MOST_CODE_CELLS_IN_A_ROW = 2  # one that only shows an explorer, and the one that moves its slider
LARGEST_OUTPUT, LARGEST_NOTEBOOK = 300_000, 1_500_000  # characters
MOST_IGNORED, ALWAYS_IGNORED = 0.25, 2  # a share of the code cells; so many may be in any notebook
FEWEST_COMPARED, FEWEST_COMPARED_AT_THE_DOOR = 5, 3
SECTIONS = ("Question", "Math", "Code", "Play", "Exercise", "Check", "Summary")
IGNORING = {"nbval-ignore-output", "nbval-skip"}
GUARD = """from importlib.util import find_spec

if not (find_spec("torch") and find_spec("lmhead_course")):
    todo = "in a copy of the whole course, run  %pip install -e ..  in a new cell, then restart the kernel"
    raise ModuleNotFoundError(f"this kernel's Python does not have the course.\\nTo install it, {todo}")

"""
"""How each setup begins: it stands in the cell itself, since there is no package yet that could say it."""
NOT_COMPARED = {WIDGET, "image/png", "image/jpeg", "application/vnd.plotly.v1+json"}
MACHINE_PATH = re.compile(
    r"(?<![\w.~/:-])/(?:root|home|Users|tmp|work|opt|srv|mnt|usr/lib|usr/local)/|\b[A-Z]:\\{1,2}(?:Users|Program)"
)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def lines_of(cell) -> int:
    return len(cell.source.splitlines())


def tags_of(cell) -> set[str]:
    """Return the cell's tags; nbval also takes one from a comment line such as `# NBVAL_SKIP`."""
    comments = re.findall(r"^\s*#+\s*(NBVAL_\w+)\s*$", cell.source, re.MULTILINE)
    return {*cell.metadata.get("tags", []), *(comment.lower().replace("_", "-") for comment in comments)}


def is_compared(cell) -> bool:
    """Return whether nbval would notice a change in what this cell shows."""
    kinds = set()
    for output in cell.outputs:
        kinds |= {"stream"} if output.output_type == "stream" else set(output.get("data", {}))
    return bool(kinds - NOT_COMPARED) and cell.execution_count is not None and not tags_of(cell) & IGNORING


def without_magics(source: str) -> str:
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)


# Each rule yields what is wrong, in words. The name of the rule is the name of the test.


def every_code_cell_has_been_run(notebook, name) -> Iterator[str]:
    for cell in code_cells(notebook):
        if cell.execution_count is None:
            yield f"not run, so nbval would pass it unread: {cell.source[:60]!r}"


def it_was_run_once_from_top_to_bottom(notebook, name) -> Iterator[str]:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"run in the order {counts}: store it with tools/store_notebooks.py"


def no_cell_ended_in_an_error_or_wrote_to_stderr(notebook, name) -> Iterator[str]:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                yield f"{output.get('ename', 'stderr')} below {cell.source[:60]!r}"


def no_widget_is_stored(notebook, name) -> Iterator[str]:
    if "widgets" in notebook.metadata:
        yield "widget state in the notebook's metadata"
    for cell in code_cells(notebook):
        if any(WIDGET in output.get("data", {}) for output in cell.outputs):
            yield f"a widget that no viewer can show without its state, below {cell.source[:60]!r}"


def outputs_are_small(notebook, name) -> Iterator[str]:
    for cell in code_cells(notebook):
        size = max((len(json.dumps(output)) for output in cell.outputs), default=0)
        if size > LARGEST_OUTPUT:
            yield f"an output of {size:,} characters (at most {LARGEST_OUTPUT:,}) below {cell.source[:60]!r}"
    if (size := len(json.dumps(notebook))) > LARGEST_NOTEBOOK:
        yield f"{size:,} characters in all (at most {LARGEST_NOTEBOOK:,})"


def nothing_names_a_folder_of_one_machine(notebook, name) -> Iterator[str]:
    for cell in code_cells(notebook):
        texts = [cell.source]
        for output in cell.outputs:
            data = {kind: part for kind, part in output.get("data", {}).items() if kind not in NOT_COMPARED}
            texts += [output.get("text", ""), *(part for part in data.values() if isinstance(part, str))]
        for found in (found for text in texts for found in MACHINE_PATH.finditer(text)):
            yield f"a path: {found.string[found.start() : found.start() + 60]!r}"


def the_format_is_current_and_every_cell_has_an_id(notebook, name) -> Iterator[str]:
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        yield f"format {notebook.nbformat}.{notebook.nbformat_minor}: ids came with 4.5"
    ids = [cell.get("id") for cell in notebook.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "a cell without an id, or two with the same"


def the_kernel_is_called_python3(notebook, name) -> Iterator[str]:
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield f"the kernel is called {kernel!r}"


def cells_are_short(notebook, name) -> Iterator[str]:
    cells = code_cells(notebook)
    yield from (f"{lines_of(c)} lines: {c.source[:60]!r}" for c in cells if lines_of(c) > LONGEST_CELL)
    short = sum(lines_of(cell) <= LONG_CELL for cell in cells)
    if short < SHARE_OF_SHORT_CELLS * len(cells):
        yield f"only {short} of {len(cells)} code cells have at most {LONG_CELL} lines"


def no_long_function_is_defined_in_a_cell(notebook, name) -> Iterator[str]:
    for cell in code_cells(notebook):
        for node in ast.walk(ast.parse(without_magics(cell.source))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = node.end_lineno - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    yield f"{node.name} has {length} lines (at most {LONGEST_FUNCTION}): move it to the package"


def prose_comes_before_code(notebook, name) -> Iterator[str]:
    kinds = [cell.cell_type for cell in notebook.cells]
    if kinds[:1] != ["markdown"]:
        yield "it begins with code"
    in_a_row = 0
    for cell in notebook.cells:
        in_a_row = in_a_row + 1 if cell.cell_type == "code" else 0
        if in_a_row > MOST_CODE_CELLS_IN_A_ROW:
            yield f"code cell {in_a_row} in a row: {cell.source[:60]!r}"


def few_outputs_are_left_uncompared_on_purpose(notebook, name) -> Iterator[str]:
    cells = code_cells(notebook)[1:]  # the setup may show a download, so it does not count
    ignored = sum(bool(tags_of(cell) & IGNORING) for cell in cells)
    if ignored > max(MOST_IGNORED * len(cells), ALWAYS_IGNORED):
        yield f"{ignored} of {len(cells)} code cells after the setup are tagged {sorted(IGNORING)}"


def enough_outputs_are_compared(notebook, name) -> Iterator[str]:
    wanted = FEWEST_COMPARED_AT_THE_DOOR if name.startswith("00") else FEWEST_COMPARED
    compared = sum(is_compared(cell) for cell in code_cells(notebook))
    if compared < wanted:
        yield f"{compared} compared outputs, at least {wanted} are needed: print what the text claims"


def the_first_code_cell_is_the_setup(notebook, name) -> Iterator[str]:
    source = next((cell.source for cell in code_cells(notebook)), "")
    for wanted in ("lmhead_course", "torch.set_num_threads(1)"):
        if wanted not in source.removeprefix(GUARD):
            yield f"the first code cell does not say {wanted}"
    if not source.startswith(GUARD):
        yield f"the first code cell does not begin as in every notebook, with {GUARD!r}"


def every_section_is_there(notebook, name) -> Iterator[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    wanted = () if name.startswith("00") else SECTIONS
    yield from (
        f"no section '## {word}'" for word in wanted if not re.search(rf"^##\s+{word}\b", text, re.MULTILINE)
    )


def links_to_files_lead_somewhere(notebook, name) -> Iterator[str]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", cell.source):
                if not (ROOT / "notebooks" / target).exists():
                    yield f"a link to {target}, which is not there"


RULES = [
    every_code_cell_has_been_run,
    it_was_run_once_from_top_to_bottom,
    no_cell_ended_in_an_error_or_wrote_to_stderr,
    no_widget_is_stored,
    outputs_are_small,
    nothing_names_a_folder_of_one_machine,
    the_format_is_current_and_every_cell_has_an_id,
    the_kernel_is_called_python3,
    cells_are_short,
    no_long_function_is_defined_in_a_cell,
    prose_comes_before_code,
    few_outputs_are_left_uncompared_on_purpose,
    enough_outputs_are_compared,
    the_first_code_cell_is_the_setup,
    every_section_is_there,
    links_to_files_lead_somewhere,
]


def test_there_are_notebooks_to_check():
    assert PATHS


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_notebook(path, rule):
    assert list(rule(nbformat.read(path, as_version=4), path.name)) == []


# The glossary, one page for all notebooks.


def slug(heading: str) -> str:
    """Return a heading's anchor, where JupyterLab and GitHub agree on it: small letters, spaces as hyphens."""
    assert re.fullmatch("[a-z -]+", heading)
    return heading.replace(" ", "-")


def glossary() -> list[str]:
    text = (ROOT / "notebooks" / "glossary.md").read_text(encoding="utf-8")
    return [slug(heading) for heading in re.findall("^## (.+)$", text, re.MULTILINE)]


def glossary_links() -> list[str]:
    texts = [cell.source for path in PATHS for cell in nbformat.read(path, as_version=4).cells]
    return [anchor for text in texts for anchor in re.findall(r"\]\(glossary\.md#([^)]*)\)", text)]


def test_every_link_into_the_glossary_leads_to_a_term():
    assert set(glossary_links()) <= set(glossary())


def test_every_term_of_the_glossary_is_linked_from_its_first_use():
    assert set(glossary()) <= set(glossary_links())


def test_the_glossary_is_in_alphabetical_order_with_each_term_once():
    assert glossary() == sorted(set(glossary()))


def test_the_glossary_leads_to_notebooks_that_are_there():
    text = (ROOT / "notebooks" / "glossary.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert links
    assert {link for link in links if not (ROOT / "notebooks" / link).is_file()} == set()


# The rules themselves: a notebook that keeps them all, then the same one with one fault.


def good_notebook():
    prose = [new_markdown_cell("# Title"), *(new_markdown_cell(f"## {word}") for word in SECTIONS)]
    sources = [GUARD + "import torch, lmhead_course\ntorch.set_num_threads(1)\nprint(0)", *("print(1)",) * 6]
    cells = []
    for count, (text, source) in enumerate(zip(prose, [*sources, None], strict=True), 1):
        out = [new_output("stream", name="stdout", text="1\n")]
        cells += [text, new_code_cell(source, execution_count=count, outputs=out)] if source else [text]
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL}, nbformat_minor=5)


def widget_output():
    return new_output("display_data", data={WIDGET: {"model_id": "1"}, "text/plain": "x"})


def set_all(notebook, **values):
    for cell in code_cells(notebook)[1:]:
        cell.update(copy.deepcopy(values))


def put(index=3, **values):
    return lambda notebook: notebook.cells[index].update(copy.deepcopy(values))


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 10
FAULTS = [
    (every_code_cell_has_been_run, put(execution_count=None)),
    (it_was_run_once_from_top_to_bottom, put(execution_count=7)),
    (
        no_cell_ended_in_an_error_or_wrote_to_stderr,
        put(outputs=[new_output("error", ename="KeyError", evalue="'x'", traceback=[])]),
    ),
    (
        no_cell_ended_in_an_error_or_wrote_to_stderr,
        put(outputs=[new_output("stream", name="stderr", text="warning")]),
    ),
    (no_widget_is_stored, put(outputs=[widget_output()])),
    (no_widget_is_stored, lambda notebook: notebook.metadata.update(widgets={"state": {}})),
    (outputs_are_small, put(outputs=[new_output("stream", text="x" * 400_000)])),
    (
        outputs_are_small,
        lambda notebook: set_all(notebook, outputs=[new_output("stream", text="x" * 290_000)]),
    ),
    (nothing_names_a_folder_of_one_machine, put(source="open('/home/ada/x')")),
    (nothing_names_a_folder_of_one_machine, put(outputs=[new_output("stream", text="in /tmp/x.py")])),
    (
        nothing_names_a_folder_of_one_machine,
        put(outputs=[new_output("display_data", data={"text/plain": "PosixPath('/root/.cache')"})]),
    ),
    (nothing_names_a_folder_of_one_machine, put(outputs=[new_output("stream", text=r"C:\Users\ada")])),
    (the_format_is_current_and_every_cell_has_an_id, lambda notebook: notebook.update(nbformat_minor=4)),
    (the_format_is_current_and_every_cell_has_an_id, lambda notebook: notebook.cells[0].pop("id")),
    (
        the_format_is_current_and_every_cell_has_an_id,
        lambda notebook: notebook.cells[0].update(id=notebook.cells[1].id),
    ),
    (the_kernel_is_called_python3, lambda notebook: notebook.metadata.pop("kernelspec")),
    (cells_are_short, put(source="x = 1\n" * 26)),
    (cells_are_short, lambda notebook: set_all(notebook, source="x = 1\n" * 16)),
    (no_long_function_is_defined_in_a_cell, put(source="%time pass\n" + LONG_FUNCTION)),
    (no_long_function_is_defined_in_a_cell, put(source=LONG_FUNCTION.replace("def", "async def"))),
    (prose_comes_before_code, lambda notebook: notebook.cells.pop(0)),
    (prose_comes_before_code, lambda notebook: [notebook.cells.pop(4), notebook.cells.pop(5)]),
    (
        few_outputs_are_left_uncompared_on_purpose,
        lambda notebook: set_all(notebook, metadata={"tags": ["nbval-ignore-output"]}),
    ),
    (
        few_outputs_are_left_uncompared_on_purpose,
        lambda notebook: set_all(notebook, source="# NBVAL_SKIP\nprint(1)"),
    ),
    (enough_outputs_are_compared, lambda notebook: set_all(notebook, outputs=[])),
    (
        enough_outputs_are_compared,
        lambda notebook: set_all(notebook, outputs=[new_output("display_data", data={"image/png": "x"})]),
    ),
    (enough_outputs_are_compared, lambda notebook: set_all(notebook, execution_count=None)),
    (the_first_code_cell_is_the_setup, put(1, source=GUARD + "import torch, lmhead_course")),
    (the_first_code_cell_is_the_setup, put(1, source=GUARD + "import torch\ntorch.set_num_threads(1)")),
    (the_first_code_cell_is_the_setup, put(1, source="import lmhead_course\ntorch.set_num_threads(1)")),
    (every_section_is_there, put(6, source="Exercise")),
    (links_to_files_lead_somewhere, put(0, source="[next](99_nowhere.ipynb#here)")),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_good_notebook_passes(rule):
    assert list(rule(good_notebook(), "01_example.ipynb")) == []


@pytest.mark.parametrize(("rule", "fault"), FAULTS, ids=[rule.__name__ for rule, _ in FAULTS])
def test_a_fault_is_seen(rule, fault):
    notebook = good_notebook()
    fault(notebook)
    assert list(rule(notebook, "01_example.ipynb"))


def test_every_rule_has_been_seen_to_fail():
    assert {rule for rule, _ in FAULTS} == set(RULES)


@pytest.mark.parametrize(
    "text", ["https://example.org/home/x", "a/tmp/b", "P(A|B): 0.5", "and/or/", "~/work/", "ratio 3/opt/"]
)
def test_what_is_no_path_of_a_machine_passes(text):
    notebook = good_notebook()
    notebook.cells[3].source = text
    assert list(nothing_names_a_folder_of_one_machine(notebook, "01")) == []


def test_a_notebook_in_a_kernel_without_the_course_says_what_to_run(tmp_path):
    # -S leaves out all that pip installed, -I this folder.
    command = [sys.executable, "-I", "-S", "-c", GUARD + "import lmhead_course"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("To install it, in a copy of the whole course, run  %pip install -e ..")


# pytest --nbval with the project's own settings: it must be able to fail.


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a small notebook, run and stored as the real ones are, and the folder it lies in."""
    sources = [
        "print('kept', 37, 'of 49,152')",
        "round(0.7729, 3)",
        "from IPython.display import Markdown\nMarkdown('**0.773**')",
        "import time\nstart = time.time()\nprint(f'took {time.time() - start:.6f} s on cpu')",
    ]
    folder = tmp_path_factory.mktemp("notebooks")
    notebook = tidy(execute(new_notebook(cells=[new_code_cell(source) for source in sources]), folder))
    write(notebook, folder / "small.ipynb")
    return folder / "small.ipynb"


def nbval(path: Path) -> tuple[int, str]:
    """Run pytest --nbval on one notebook, with the settings in pyproject.toml, as from the command line."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "pyproject.toml",
        "--nbval",
        "-p",
        "no:cacheprovider",
        str(path),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_stored_notebook_passes_nbval(stored):
    code, text = nbval(stored)
    assert code == 0, text
    assert "4 passed" in text


def test_a_corrupted_stored_output_is_caught_and_a_duration_is_not_compared(stored, tmp_path):
    notebook = nbformat.read(stored, as_version=4)
    (printed, value, markdown, timed) = (cell.outputs[0] for cell in notebook.cells)
    printed.text = printed.text.replace("37", "38")
    value.data["text/plain"] = "0.774"
    markdown.data["text/markdown"] = "**0.774**"
    timed.text = "took 99.5 s on cuda:1\n"
    write(notebook, tmp_path / "corrupted.ipynb")
    code, text = nbval(tmp_path / "corrupted.ipynb")
    assert code == 1, text
    assert "3 failed, 1 passed" in text


def test_storing_replaces_a_widget_by_a_line_that_says_what_to_do():
    cell = new_code_cell("explorer", outputs=[widget_output()], metadata={"tags": ["nbval-ignore-output"]})
    assert tidy(new_notebook(cells=[cell])).cells[0].outputs[0].data == {"text/plain": PLACEHOLDER}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (widget_output(), "tag it nbval-ignore-output"),
        (new_output("stream", name="stderr", text="warning"), "wrote to stderr"),
    ],
)
def test_storing_refuses_what_can_not_be_compared(output, words):
    with pytest.raises(ValueError, match=words):
        tidy(new_notebook(cells=[new_code_cell("x", outputs=[output])]))


def test_storing_leaves_out_what_a_cell_says_about_one_machine():
    out = new_output("stream", name="stdout", text="/home/ada")
    cell = new_code_cell("x", outputs=[out], metadata={"tags": ["nbval-ignore-output", "own-machine"]})
    (stored,) = tidy(new_notebook(cells=[cell])).cells[0].outputs
    assert stored.data == {"text/plain": PLACEHOLDER_OF_MACHINE}


def test_storing_keeps_tags_and_drops_times_and_machine_names():
    cell = new_code_cell("x", metadata={"tags": ["setup"], "execution": {"iopub.status.busy": "2026"}})
    metadata = {"language_info": {"name": "python", "version": "3.11.7"}, "widgets": {}}
    notebook = tidy(new_notebook(cells=[cell], metadata=metadata))
    assert notebook.cells[0].metadata == {"tags": ["setup"]}
    assert notebook.metadata == {"kernelspec": KERNEL, "language_info": {"name": "python"}}


def test_a_notebook_that_fails_is_not_stored(tmp_path):
    from nbclient.exceptions import CellExecutionError

    from tools.store_notebooks import store

    path = tmp_path / "failing.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("1 / 0")]), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        store(path)
    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == before


def test_all_notebooks_are_those_of_the_course_without_what_a_learner_kept(tmp_path, monkeypatch):
    from tools import store_notebooks

    for name in ("03_sampling.ipynb", "03_sampling.mine-1.ipynb", "00_start_here.ipynb"):
        nbformat.write(new_notebook(), tmp_path / name)
    stored = []
    monkeypatch.setattr(store_notebooks, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(store_notebooks, "store", lambda path: stored.append(path.name))
    store_notebooks.main([])
    assert stored == ["00_start_here.ipynb", "03_sampling.ipynb"]
    store_notebooks.main([str(tmp_path / "03_sampling.mine-1.ipynb")])  # by its name it may be
    assert stored[2:] == ["03_sampling.mine-1.ipynb"]
