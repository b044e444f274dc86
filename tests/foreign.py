"""Text that would do harm if anything read it: markup, scripts, links, TeX, plotly's own tags, direction marks."""

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = "<img src=x onerror=window.hacked=1>"
LINK = '<a href="javascript:window.hacked=1">go</a>'
PLOTLY = "<b>b</b><i>i</i><br><sup>s</sup>&lt;"
TEX = "$\\frac{1}{2}$"
PARENTHESES = "\\(x^2\\)"
TEMPLATE = "%{x}{{x}}"
TURNED = "ab\u202ecd\u202c"
MARKDOWN = "[m](javascript:window.hacked=1)**m**`m`"
HALF = "\ud83d"

TEXTS = (SCRIPT, IMAGE, LINK, PLOTLY, TEX, PARENTHESES, TEMPLATE, TURNED, MARKDOWN, HALF)
"""One of each kind, to be labels."""

ALL = "".join(TEXTS)
"""All of them in one text."""

SHOWN = {text: text for text in TEXTS} | {TURNED: "ab<U+202E>cd<U+202C>", HALF: "<U+D83D>"}
"""What is to be read on the page for each."""
