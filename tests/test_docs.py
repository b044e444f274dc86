"""The pages of the project: links lead somewhere, and the marking guide knows every exercise."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
EXERCISE = re.compile(r"\*\*Exercise (\d+)[:.]")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def broken_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading of it."""
    bad = []
    for path, anchor in LINK.findall(page.read_text("utf-8")):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor[1:] not in anchors(target)):
            bad.append(path + anchor)
    return bad


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    assert broken_links(page) == []


@pytest.mark.parametrize("link", ["nowhere.md", "#nowhere", "README.md#nowhere"])
def test_a_link_to_nowhere_would_be_seen(tmp_path, link):
    (tmp_path / "README.md").write_text("# A heading\n[good](#a-heading)\n")
    (tmp_path / "page.md").write_text(f"# Title\n[bad]({link})\n")
    assert broken_links(tmp_path / "page.md") == [link]


def test_the_marking_guide_has_a_row_for_every_exercise_and_no_other():
    asked = set()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        asked |= {f"{path.name[:2]}.{number}" for number in EXERCISE.findall(prose)}
    rows = re.findall(
        r"^\| (\d\d\.\d+) \| .+ \| .+ \|$", (ROOT / "docs" / "teaching.md").read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == len(set(rows))
    assert set(rows) == asked


@pytest.mark.parametrize("number", [path.name[:2] for path in sorted((ROOT / "notebooks").glob("0*.ipynb"))])
def test_the_plan_of_a_lesson_fills_fifty_minutes_without_a_gap(number):
    text = (ROOT / "docs" / "teaching.md").read_text("utf-8")
    (plan,) = re.findall(rf"^### {number} ·.*?(?=^#)", text, re.MULTILINE | re.DOTALL)
    spans = [(int(start), int(end)) for start, end in re.findall(r"^\| (\d+)–(\d+) \|", plan, re.MULTILINE)]
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == 50
