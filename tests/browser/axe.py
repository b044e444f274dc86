"""axe-core, the accessibility checker, run inside what is ours on a page."""

from axe_playwright_python.base import AXE_SCRIPT

# What the course brings: the outputs of its cells and its prose. The rest of the page is JupyterLab's.
OURS = [[".jp-OutputArea-output"], [".jp-MarkdownOutput"]]
GRAVE = {"serious", "critical"}
# Links in prose have JupyterLab's style: a colour of their own, and a line only below the mouse.
NOT_OURS = [[".jp-MarkdownOutput a"]]
# Cells outside of the window are taken off the page, and nobody would look at them. And what overflows the body, which
# JupyterLab makes 0 pixels high, axe takes for hidden: it would pass every colour.
KEEP_ALL_CELLS = """() => {
    const notebook = window.jupyterapp.shell.currentWidget.content;
    notebook.notebookConfig = { ...notebook.notebookConfig, windowingMode: "none" };
    document.body.style.overflow = "visible";
}"""


def show_all_cells(page) -> None:
    """Have the open notebook keep every cell on the page, and wait until outputs have been drawn."""
    page.evaluate(KEEP_ALL_CELLS)
    page.wait_for_timeout(2000)


def grave_findings(page, include=OURS) -> list[str]:
    """Return axe's serious and critical findings inside the parts given, one line each, in words."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    found = page.evaluate(
        "context => axe.run(context, {resultTypes: ['violations']}).then(result => result.violations)",
        {"include": include, "exclude": NOT_OURS},
    )
    return [
        f"{rule['id']}: {node['html'][:200]} ({' '.join(node['target'])}): {node['failureSummary']}"
        for rule in found
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]
