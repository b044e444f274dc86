"""One page with every explorer, and what the browser knows about its controls."""

from dataclasses import dataclass

# By the name of the explorer's class, in one cell each.
EXPLORERS = {
    "SamplingExplorer": "lm = course.load_model()\ncourse.SamplingExplorer(lm)",
    "PipelineExplorer": "course.PipelineExplorer(lm)",
    "DrawsExplorer": "course.DrawsExplorer(logits=toy.toy_logits(), labels=toy.LABELS)",
    "ProjectionExplorer": "course.ProjectionExplorer(lm)",
    "SoftmaxExplorer": "course.SoftmaxExplorer()",
    "CostExplorer": "course.CostExplorer()",
    "TyingExplorer": """from lmhead_course.twins import RowGradients
def record(step):
    seen = (torch.arange(60) % 3 == step % 3).long()
    into, out = seen * 0.01, torch.full((60,), 1e-3 / (step + 1))
    return RowGradients(step, 4.0, seen, into, out, into + out)
records = [record(step) for step in (0, 5, 10)]
course.TyingExplorer(records, records, counts=torch.arange(60, 0, -1), labels=[f"word {i}" for i in range(60)])""",
    "LossExplorer": """from lmhead_course.calibration import Predictions
c = torch.linspace(0.05, 0.95, 500)
course.LossExplorer(predictions=Predictions(c, c > 0.5, c, 50))""",
    "GenerationExplorer": "course.GenerationExplorer(lm)",
    "LensExplorer": "course.LensExplorer(lm)",
}
# What can be operated: a group of buttons with one stop of the Tab key counts once (tabindex=-1 for the others).
CONTROLS = (
    "input, select, textarea, button, summary, a[href], [role=slider], [tabindex='0'], "
    ".jupyter-widget-Collapse-header, .noUi-handle"
)
MARK_CONTROLS = """(root, selector) => [...root.querySelectorAll(selector)]
    .filter(node => node.checkVisibility() && node.getClientRects().length)
    .filter(node => !node.disabled && !(node.tabIndex < 0 && node.matches("button")))
    .map((node, number) => ((node.dataset.stop = number), node.outerHTML.slice(0, 120)))"""
FOCUSED = """() => {
    const node = document.activeElement, style = getComputedStyle(node), box = node.getBoundingClientRect();
    return {
        stop: Number(node.dataset.stop ?? -1),
        ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        inside: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
        html: node.outerHTML.slice(0, 120),
    };
}"""


@dataclass(frozen=True)
class Stop:
    """Where one press of the Tab key led: the number of the control, and what the browser tells of it."""

    stop: int
    ring: bool
    inside: bool
    html: str
    role: str
    name: str


class Gallery:
    """The page with every explorer."""

    def __init__(self, lab):
        self.lab, self.page = lab, lab.page
        self.devtools = lab.page.context.new_cdp_session(lab.page)

    def explorer(self, name: str):
        """Return the explorer of this name as a locator."""
        return self.page.locator(".jp-CodeCell").nth(1 + list(EXPLORERS).index(name)).locator(".lmhead")

    def walk(self, name: str) -> tuple[list[str], list[Stop]]:
        """Press Tab from the first control of an explorer to behind its last; return its controls and the stops."""
        root = self.explorer(name)
        controls = root.evaluate(MARK_CONTROLS, CONTROLS)
        root.locator("[data-stop='0']").focus()
        # Focus that came by a script shows no ring in every browser; the key's does.
        self.page.keyboard.press("Tab")
        self.page.keyboard.press("Shift+Tab")
        stops = []
        for _ in range(len(controls) + 3):
            focused = self.page.evaluate(FOCUSED)
            if focused["stop"] < 0 or not root.evaluate("root => root.contains(document.activeElement)"):
                break
            stops.append(Stop(**focused, **self._told()))
            self.page.keyboard.press("Tab")
        root.evaluate(
            "root => root.querySelectorAll('[data-stop]').forEach(node => delete node.dataset.stop)"
        )
        return controls, stops

    def _told(self) -> dict[str, str]:
        """Return role and name of the focused element as the browser tells them to a screen reader."""
        node = self.devtools.send("Runtime.evaluate", {"expression": "document.activeElement"})["result"][
            "objectId"
        ]
        tree = self.devtools.send(
            "Accessibility.getPartialAXTree", {"objectId": node, "fetchRelatives": False}
        )
        told = tree["nodes"][0]
        return {key: told.get(key, {}).get("value", "") for key in ("role", "name")}
