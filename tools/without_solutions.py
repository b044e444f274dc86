"""Write a copy of the course without its solutions, for a class whose teacher wants to mark.

    python tools/without_solutions.py FOLDER

FOLDER must not exist yet. It becomes a course of its own: the notebooks with every exercise, checker and hint, the
package, and what is needed to install them. Left out are the solutions folded below the verdicts, in the stored
notebooks and in the package, the answers to the questions at each notebook's end, and whatever else holds
right answers: the tests and the teacher's page. Both stored notebooks and package lose the same texts, so
``pytest --nbval`` passes in the copy too.

A checker must know what is right. Somebody who reads ``lmhead_course/checks`` can still work it out from there, and
some notebooks measure, a few cells later, what they had asked to be predicted.
"""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (
    "tests/",
    "benchmarks/",
    ".ci/",
)  # tests give right answers; the others serve those who change the course
TEACHERS_PAGE = "docs/teaching.md"
STUB = "# For teachers\n\nThis copy of the course is the one for learners; its teacher's page is in the full one.\n"

FOLDED_SOLUTION = re.compile(r"<details><summary>Solution</summary>.*?</details>", re.DOTALL)
ANSWERED_QUESTION = re.compile(r"<details>\s*<summary>(.*?)</summary>.*?</details>", re.DOTALL)
WORDS = (  # what the notebooks say about solutions
    ("hint and solution are folded", "a hint is folded"),
    ("Questions to answer aloud. Unfold one when you have your own answer.", "Questions to answer aloud."),
)


def without_answers(notebook: NotebookNode) -> NotebookNode:
    """Drop from `notebook`, in place, every stored solution and every answer in its section Check."""
    section = ""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for output in cell.outputs:
                html = output.get("data", {}).get("text/html")
                if html:
                    output.data["text/html"] = FOLDED_SOLUTION.sub("", html)
            continue
        section = (re.findall(r"^## +(\w+)", cell.source, re.MULTILINE) or [section])[-1]
        if section == "Check":
            cell.source = ANSWERED_QUESTION.sub(r"- \1", cell.source)
        for old, new in WORDS:
            cell.source = cell.source.replace(old, new)
    return notebook


def without_solutions(source: str) -> str:
    """Return Python source in which each ``Exercise(..., solution=...)`` has an empty solution."""
    lines = source.splitlines(keepends=True)
    found = [
        keyword.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "solution"
    ]
    # The last first, so that what stands before keeps its place.
    for value in sorted(found, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        first, last = value.lineno - 1, value.end_lineno - 1
        before = lines[first].encode()[: value.col_offset].decode()  # ast counts columns in bytes
        after = lines[last].encode()[value.end_col_offset :].decode()
        lines[first : last + 1] = [f'{before}""{after}']
    return "".join(lines)


def tracked() -> list[str]:
    """Return the paths that belong to the course, as git knows them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        sys.exit(
            f"git must know which files are the course's, so run this in a clone. It says: {listed.stderr}"
        )
    return [path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()]


def copy(path: str, target: Path) -> None:
    """Copy one file of the course to `target`, without the solutions in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.endswith(".ipynb"):
        notebook = without_answers(nbformat.read(ROOT / path, as_version=4))
        target.write_text(nbformat.writes(notebook) + "\n", "utf-8", newline="\n")
    elif path.startswith("lmhead_course/checks/"):
        target.write_text(without_solutions((ROOT / path).read_text("utf-8")), "utf-8", newline="\n")
    elif path == TEACHERS_PAGE:
        target.write_text(STUB, "utf-8", newline="\n")
    else:
        shutil.copy2(ROOT / path, target)


def main(arguments: list[str]) -> None:
    """Write the edition to the one folder in `arguments`."""
    if len(arguments) != 1:
        sys.exit("use: python tools/without_solutions.py FOLDER")
    folder = Path(arguments[0]).expanduser().resolve()
    if folder.exists():
        sys.exit(
            f"{folder} is there already: name a folder that is not, so that nothing of an old edition stays"
        )
    paths = [path for path in tracked() if not path.startswith(LEFT_OUT)]
    folder.mkdir(parents=True)
    try:
        for path in paths:
            copy(path, folder / path)
    except BaseException:  # half an edition would look like a whole one
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"{len(paths)} files in {folder}. Check them there with the README's test command.")


if __name__ == "__main__":
    main(sys.argv[1:])
