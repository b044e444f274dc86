"""The lens explorer, moved by its traits; its numbers against the head itself. No weights are needed."""

import json
import threading

import pytest
import torch

from lmhead_course import figures
from lmhead_course.explorers import LensExplorer
from lmhead_course.explorers.lens_view import COLUMNS, QUANTITIES, LensParams, LensScene, figure_of, view_of
from lmhead_course.projection import LMHead

PIECES = [" Paris", "Paris", " London", " the", " dog", " <b>", "$x$", " a", "b", "%{z}"]
D_MODEL, LAYERS = 12, 4
TEXT = " the dog a"


class Layered:
    """A model with a head and layers: each turns the mean of the tokens' rows a little further."""

    def __init__(self):
        random = torch.Generator().manual_seed(0)
        self.head = LMHead(torch.randn(len(PIECES), D_MODEL, generator=random))
        self.turns = torch.randn(LAYERS, D_MODEL, generator=random)
        self.scale = torch.rand(D_MODEL, generator=random) + 0.5
        self.context_length, self.eos_ids, self.reads = 64, set(), []

    def encode(self, text, special=False):
        ids = []
        while text:
            fits = [i for i, piece in enumerate(PIECES) if text.startswith(piece)]
            if not fits:
                raise ValueError(f"text has {text!r}, which is no token")
            ids.append(max(fits, key=lambda i: len(PIECES[i])))
            text = text[len(PIECES[ids[-1]]) :]
        return ids

    def decode(self, ids):
        return "".join(PIECES[i] for i in ids)

    def label(self, token_id):
        return PIECES[token_id].replace(" ", "␣")

    def step(self, ids, cache=None, mask=None, last_only=True):
        raise NotImplementedError

    def logits(self, text):
        return self.head(self.final_norm(self.hidden_states(text)[-1, -1]))

    def hidden_states(self, text):
        self.reads.append(text)
        ids = self.encode(text)
        if not ids:
            raise ValueError("text is empty: give it some text")
        rows = self.head.weight[ids].detach()
        means = rows.cumsum(0) / torch.arange(1, len(rows) + 1)[:, None]
        return torch.stack([means, *(means + turn for turn in self.turns)])

    def final_norm(self, hidden):
        return 3 * self.scale * torch.nn.functional.normalize(hidden, dim=-1)


@pytest.fixture
def lm():
    return Layered()


@pytest.fixture
def explorer(lm):
    return LensExplorer(lm, prompt=TEXT, word="Paris")


def probabilities(lm, normed=True, text=TEXT):
    states = lm.hidden_states(text)
    return torch.softmax(lm.head(lm.final_norm(states) if normed else states), dim=-1)


def heatmap(explorer):
    return json.loads(explorer.plot.figure)["data"][0]


# ---- what it shows --------------------------------------------------------------------------------------


def test_every_cell_names_the_top_token_of_its_layer_and_position(explorer, lm):
    top = probabilities(lm).argmax(dim=-1)
    assert explorer.view.labels == tuple(tuple(lm.label(int(i)) for i in line) for line in top)
    assert explorer.view.tokens == ("␣the", "␣dog", "␣a")


def test_it_begins_at_the_last_layer_and_the_last_token(explorer, lm):
    p = probabilities(lm)[-1, -1]
    assert explorer.view.candidates[0] == (lm.label(int(p.argmax())), pytest.approx(p.max().item()))
    assert explorer.sentence.startswith(f"After layer {LAYERS}, with the final norm")
    assert "at “␣a”" in explorer.sentence
    assert explorer.error == ""


def test_moving_the_cell_spells_out_another_one(explorer, lm):
    explorer.layer.value, explorer.position.value = 1, -1
    p = probabilities(lm)[1, 1]
    assert [name for name, _ in explorer.view.candidates][:3] == [lm.label(int(i)) for i in p.topk(3).indices]
    assert "After layer 1" in explorer.sentence
    assert "at “␣dog”" in explorer.sentence
    frame = json.loads(explorer.plot.figure)["layout"]["shapes"][0]
    assert (frame["x0"], frame["y0"]) == (0.5, 0.5)


def test_a_position_left_of_the_text_is_its_first_token(explorer):
    explorer.position.value = -9
    assert "at “␣the”" in explorer.sentence


def test_without_the_norm_the_head_reads_the_plain_stream(explorer, lm):
    explorer.norm.value = False
    p = probabilities(lm, normed=False)
    torch.testing.assert_close(explorer.view.reading.probability, p.amax(dim=-1))
    assert "without the final norm" in explorer.sentence


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_colours_are_the_quantity_that_was_chosen(explorer, lm, quantity):
    explorer.quantity.value = quantity
    p = probabilities(lm)
    expected = {
        QUANTITIES[0]: p.amax(dim=-1),
        QUANTITIES[1]: (1 + (p > p[..., :1]).sum(dim=-1)).log10(),
        QUANTITIES[2]: -(p * p.log2()).sum(dim=-1),
    }[quantity]
    torch.testing.assert_close(
        torch.tensor(json_numbers(heatmap(explorer)["z"]), dtype=torch.float64),
        expected.double(),
        atol=1e-4,
        rtol=1e-4,
    )


def json_numbers(z):
    """Return plotly's JSON of an array, which may be packed, as nested lists."""
    if isinstance(z, dict):
        import base64

        import numpy as np

        flat = np.frombuffer(base64.b64decode(z["bdata"]), dtype=z["dtype"])
        return flat.reshape([int(n) for n in z["shape"].split(",")]).astype(float).tolist()
    return z


def test_another_word_gets_its_own_rank(explorer, lm):
    explorer.word.value = "London"
    p = probabilities(lm)[-1, -1]
    assert f"“␣London” has rank {1 + int((p > p[2]).sum())} of {len(PIECES)}" in explorer.sentence


def test_another_text_is_read_once(explorer, lm):
    explorer.prompt.value = " dog dog the"
    reads = len(lm.reads)
    assert explorer.view.tokens == ("␣dog", "␣dog", "␣the")
    for layer in range(LAYERS):
        explorer.layer.value = layer
    explorer.norm.value = False
    assert len(lm.reads) == reads


def test_of_a_long_text_the_last_tokens_are_drawn(explorer):
    explorer.prompt.value = " a" * 10 + " the" + " dog" * 9
    assert len(explorer.view.tokens) == COLUMNS
    assert explorer.view.tokens[-1] == "␣dog"
    assert explorer.words.status == f"The text has 20 tokens; the last {COLUMNS} are drawn."


def test_reset_takes_everything_back(explorer):
    first = (explorer.sentence, explorer.plot.figure)
    explorer.layer.value, explorer.position.value, explorer.norm.value = 0, -2, False
    explorer.quantity.value, explorer.word.value, explorer.prompt.value = QUANTITIES[2], "dog", " a the"
    explorer.reset_button.click()
    assert (explorer.sentence, explorer.plot.figure) == first


def test_the_same_information_is_there_without_hovering(explorer):
    names = [name for name, _ in explorer.words.readouts]
    assert "entropy" in names
    assert "rank of ␣Paris" in names
    hover = heatmap(explorer)["hovertext"][-1][-1]
    assert explorer.view.candidates[0][0].replace("<", "&lt;").replace(">", "&gt;") in hover
    assert explorer.view.candidates[0][0] in explorer.sentence


# ---- what is wrong is said ------------------------------------------------------------------------------


def test_a_word_of_several_tokens_is_an_error_in_words(explorer):
    before = explorer.sentence
    explorer.word.value = "Paris dog"
    assert "is not one token" in explorer.error
    assert "as #123" in explorer.error
    assert explorer.sentence == before
    explorer.word.value = "dog"
    assert explorer.error == ""


def test_a_text_that_the_model_refuses_leaves_the_last_picture(explorer):
    before = explorer.plot.figure
    explorer.prompt.value = ""
    assert "text is empty" in explorer.error
    assert "from the last settings that worked" in explorer.error
    assert explorer.plot.figure == before
    assert explorer.words.busy is False
    explorer.prompt.value = " dog"
    assert explorer.error == ""


def test_a_fault_of_the_model_shows_in_the_explorer(explorer, lm, capsys):
    lm.hidden_states = lambda text: 1 / 0
    explorer.prompt.value = " dog"
    assert "ZeroDivisionError" in explorer.error
    assert capsys.readouterr() == ("", "")


def test_a_word_to_start_with_must_be_a_token(lm):
    with pytest.raises(ValueError, match="is not one token"):
        LensExplorer(lm, prompt=TEXT, word="Paris dog")


def test_it_is_busy_while_the_model_reads(explorer, lm):
    seen, read = [], lm.hidden_states

    def watched(text):
        seen.append((explorer.words.busy, explorer.words.status))
        return read(text)

    lm.hidden_states = watched
    explorer.prompt.value = " dog"
    assert seen == [(True, "The model is reading …")]
    assert explorer.words.busy is False


def test_the_last_of_many_moves_from_two_threads_wins(explorer):
    moves = [threading.Thread(target=setattr, args=(explorer.layer, "value", i % LAYERS)) for i in range(20)]
    for move in moves:
        move.start()
    for move in moves:
        move.join()
    explorer.layer.value = 2
    assert explorer.view.params.layer == 2
    assert "After layer 2" in explorer.sentence


# ---- numbers and picture alone --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (LensParams(layer=LAYERS + 1), "layer must be in 0 … 4"),
        (LensParams(quantity="beauty"), "quantity must"),
    ],
)
def test_params_outside_their_range_are_refused(lm, params, words):
    with pytest.raises(ValueError, match=words):
        view_of(LensScene(lm, TEXT, lm.label), params)


def test_compute_changes_nothing(explorer):
    before = (explorer.sentence, explorer.plot.figure, explorer.params)
    explorer.compute(LensParams(norm=False, layer=0, word=2))
    assert (explorer.sentence, explorer.plot.figure, explorer.params) == before


def test_labels_are_never_markup_in_the_picture(lm):
    scene = LensScene(lm, " <b>$x$%{z}", lm.label)
    figure = figure_of(scene, view_of(scene, LensParams(word=5, quantity=QUANTITIES[1])))
    page = json.dumps(figure.to_dict(), default=str, ensure_ascii=False)
    assert "<b>" not in page
    assert "$x$" not in page
    assert "␣&lt;b&gt;" in page


def test_colours_keep_their_meaning_when_the_text_changes(explorer, lm):
    explorer.quantity.value = QUANTITIES[2]
    ends = (heatmap(explorer)["zmin"], heatmap(explorer)["zmax"])
    explorer.prompt.value = " a the"
    assert (heatmap(explorer)["zmin"], heatmap(explorer)["zmax"]) == ends
    assert ends == (0.0, pytest.approx(torch.tensor(len(PIECES)).log2().item()))


def test_a_heat_map_cuts_long_labels_and_keeps_the_whole_ones_for_hovering():
    figure = figures.lens_heatmap(
        [["extraordinarily"]], [[0.5]], ["incomprehensible"], title="t", unit="u", hover=[["extraordinarily"]]
    )
    assert figure.data[0].text[0][0] == "extrao…"
    assert figure.data[0].hovertext[0][0] == "extraordinarily"
    assert figure.layout.xaxis.ticktext[0] == "incomp…"


def test_ranks_are_drawn_on_a_logarithmic_scale_with_whole_numbers_beside_it():
    figure = figures.lens_heatmap(
        [["a", "b"]], [[1, 1000]], ["x", "y"], title="t", unit="rank", low=1, high=49152, log=True
    )
    assert figure.data[0].z.tolist() == [[0.0, 3.0]]
    assert list(figure.data[0].colorbar.ticktext) == ["1", "10", "100", "1,000", "10,000"]


def contrast(background, letters="#111111"):
    """Return the ratio of luminances of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(background), luminance(letters)])
    return (high + 0.05) / (low + 0.05)


def test_letters_stand_out_on_every_step_of_the_heat_map_and_steps_get_darker():
    ratios = [contrast(colour) for colour in figures.HEAT]
    assert min(ratios) >= 4.5
    assert ratios == sorted(ratios, reverse=True)


def test_reset_tries_the_first_text_again_where_that_could_not_be_read(explorer, lm, monkeypatch):
    first, read = explorer.scene.hidden, lm.hidden_states
    explorer.prompt.value = " a the"

    def out_of_memory(text):
        raise RuntimeError("no memory left")

    monkeypatch.setattr(lm, "hidden_states", out_of_memory)
    explorer.prompt.value = TEXT
    assert "no memory left" in explorer.error
    monkeypatch.setattr(lm, "hidden_states", read)
    explorer.reset_button.click()
    assert explorer.error == ""
    assert torch.equal(explorer.scene.hidden, first)
