"""The projection explorer, moved by its traits; its numbers against the head itself. No weights are needed."""

import threading

import pytest
import torch

from lmhead_course.explorers import ProjectionExplorer
from lmhead_course.explorers.projection_view import (
    MOST_TOKENS,
    ProjectionParams,
    Scene,
    find_token,
    frame_of,
    plane_of,
    signed,
    view_of,
)
from lmhead_course.projection import LMHead, length_and_angle

PIECES = [
    " Paris",
    "Paris",
    " London",
    " the",
    " dog",
    " <b>",
    "$x$",
    " a",
    "b",
    ",",
    " ",
    "l",
    "o",
    "n",
    "g",
]
D_MODEL, LAYERS = 12, 4


class Lens:
    """A model that has layers to walk through: each turns the mean of the tokens' rows a little further."""

    def __init__(self, **head):
        random = torch.Generator().manual_seed(0)
        self.head = LMHead(torch.randn(len(PIECES), D_MODEL, generator=random), **head)
        self.turns = torch.randn(LAYERS, D_MODEL, generator=random)
        self.context_length, self.eos_ids, self.reads = 64, set(), []

    def encode(self, text, special=False):
        ids = []
        while text:
            ids.append(
                max((i for i, p in enumerate(PIECES) if text.startswith(p)), key=lambda i: len(PIECES[i]))
            )
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
        if not text:
            raise ValueError("text is empty: give it some text")
        rows = self.head.weight[self.encode(text)].detach()
        means = rows.cumsum(0) / torch.arange(1, len(rows) + 1)[:, None]
        return torch.stack([means, *(means + turn for turn in self.turns)])

    def final_norm(self, hidden):
        return 3 * torch.nn.functional.normalize(hidden, dim=-1)


TEXT = " the dog a"


@pytest.fixture
def lens():
    return Lens()


@pytest.fixture
def explorer(lens):
    return ProjectionExplorer(
        lens, prompt=TEXT, tokens=("Paris", "London", "the"), axes=("Paris − London", "dog")
    )


def row_of(explorer, label):
    return next(row for row in explorer.view.rows if row.label == label)


def hidden_at(explorer, lens, layer, x, y):
    """Return the hidden state with its shadow moved, worked out in all dimensions."""
    state = lens.final_norm(lens.hidden_states(TEXT)[layer, -1])
    plane = explorer.scene.plane
    old_x, old_y = (state @ plane.across).item(), (state @ plane.up).item()
    return state + (x - old_x) * plane.across + (y - old_y) * plane.up


# ---- the plane ------------------------------------------------------------------------------------------------


def test_the_two_directions_of_a_plane_have_length_1_and_a_right_angle():
    plane = plane_of(torch.tensor([3.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 1.0]))
    assert plane.across.norm().item() == pytest.approx(1)
    assert plane.up.norm().item() == pytest.approx(1)
    assert (plane.across @ plane.up).item() == pytest.approx(0, abs=1e-6)


def test_a_shadow_and_the_rest_add_up_to_the_vector():
    plane, v = (
        plane_of(torch.tensor([1.0, 2.0, 0.0]), torch.tensor([0.0, 1.0, 5.0])),
        torch.tensor([1.0, 2, 3]),
    )
    x, y = plane.shadow(v)
    torch.testing.assert_close(x * plane.across + y * plane.up + plane.rest(v), v)
    torch.testing.assert_close(plane.shadow(plane.rest(v)), torch.zeros(2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("second", [[2.0, 4.0, 0.0], [-1.0, -2.0, 0.0], [0.0, 0.0, 0.0]])
def test_two_directions_that_span_no_plane_are_refused(second):
    with pytest.raises(ValueError, match="same way"):
        plane_of(torch.tensor([1.0, 2.0, 0.0]), torch.tensor(second))


def test_a_first_direction_of_no_length_is_refused():
    with pytest.raises(ValueError, match="no length"):
        plane_of(torch.zeros(3), torch.tensor([1.0, 2.0, 0.0]))


# ---- words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "token"),
    [
        ("Paris", " Paris"),
        ("␣Paris", " Paris"),
        ("b", "b"),
        ("#1", "Paris"),
        (" London ", " London"),
        ("<b>", " <b>"),
    ],
)
def test_a_word_means_the_token_with_a_space_before_it_or_the_one_without(lens, word, token):
    assert find_token(lens, word) == PIECES.index(token)


@pytest.mark.parametrize(
    ("word", "words"), [("long", "not one token but"), ("#99", "#0 … #14"), ("", "missing")]
)
def test_a_word_that_is_no_token_is_refused_in_words(lens, word, words):
    with pytest.raises(ValueError, match=words):
        find_token(lens, word)


# ---- the numbers ------------------------------------------------------------------------------------------------


def test_at_the_start_the_logits_are_the_models_own(explorer, lens):
    expected = lens.logits(TEXT)
    for row in explorer.view.rows:
        assert row.logit == pytest.approx(expected[row.token_id].item(), abs=1e-5)


@pytest.mark.parametrize(
    "head", [{}, {"scale": 0.5}, {"bias": torch.arange(len(PIECES)) / 10}, {"soft_cap": 4.0}], ids=str
)
def test_after_a_move_the_logits_are_those_of_the_head_for_the_moved_state(head):
    lens = Lens(**head)
    explorer = ProjectionExplorer(lens, prompt=TEXT, tokens=("Paris", "the"), axes=("Paris − London", "dog"))
    explorer.layer.value = 2
    explorer.x.value, explorer.y.value = -1.25, 0.5
    logits = lens.head(hidden_at(explorer, lens, 2, -1.25, 0.5))
    for row in explorer.view.rows:
        assert row.logit == pytest.approx(logits[row.token_id].item(), abs=1e-4)
        assert row.rank == int((logits > logits[row.token_id]).sum()) + 1
        assert row.probability == pytest.approx(logits.softmax(-1)[row.token_id].item(), abs=1e-5)
    assert explorer.view.best == lens.label(int(logits.argmax()))


def test_length_and_angle_take_the_dot_product_apart(explorer, lens):
    explorer.x.value = 2.0
    state = hidden_at(explorer, lens, LAYERS, 2.0, explorer.scene.walk[-1, 1].item())
    lengths, angles = length_and_angle(state, lens.head.weight.detach())
    for row in explorer.view.rows:
        assert row.length == pytest.approx(lengths[row.token_id].item(), rel=1e-4)
        assert row.angle == pytest.approx(angles[row.token_id].item(), abs=0.05)
        assert row.rank_by_angle == int((angles < angles[row.token_id] - 1e-4).sum()) + 1
    assert explorer.view.length == pytest.approx(state.norm().item(), rel=1e-4)


def test_without_the_rest_only_the_drawn_shadow_is_scored(explorer):
    explorer.rest.value = False
    for row in explorer.view.rows:
        assert row.logit == pytest.approx(row.in_plane, abs=1e-5)
    assert explorer.view.outside == 0
    assert "left out" in explorer.sentence


def test_a_token_at_a_right_angle_to_the_plane_does_not_move(lens):
    head = LMHead(torch.eye(4))
    plane = plane_of(torch.tensor([1.0, 0, 0, 0]), torch.tensor([0.0, 1, 0, 0]))
    scene = Scene(head, torch.ones(1, 4), plane, torch.ones(4))
    rows = {row.token_id: row for row in view_of(scene, ProjectionParams(0, 7.0, -2.0), [0, 1, 2], str).rows}
    assert [rows[i].logit for i in range(3)] == pytest.approx([7, -2, 1])


def test_no_hidden_state_at_all_gives_zeros_and_no_error():
    head = LMHead(torch.eye(4))
    plane = plane_of(torch.tensor([1.0, 0, 0, 0]), torch.tensor([0.0, 1, 0, 0]))
    view = view_of(
        Scene(head, torch.ones(1, 4), plane, torch.ones(4)), ProjectionParams(0, 0, 0, False), [3], str
    )
    assert view.rows[0].logit == 0
    assert view.rows[0].angle == pytest.approx(90)


def test_compute_changes_nothing_and_refuses_a_layer_that_is_not_there(explorer):
    before = explorer.view
    explorer.compute(ProjectionParams(1, 0.0, 0.0))
    assert explorer.view is before
    with pytest.raises(ValueError, match="layer must be in 0 … 4, got 9"):
        explorer.compute(ProjectionParams(9, 0.0, 0.0))


# ---- what moves what --------------------------------------------------------------------------------------------


def test_a_drag_in_the_page_moves_both_sliders_and_the_words(explorer):
    explorer.plane.point = [0.4, -0.8]
    assert (explorer.x.value, explorer.y.value) == (0.4, -0.8)
    assert "(0.40, −0.80)" in explorer.sentence
    assert "moved from there" in explorer.sentence


def test_a_slider_moves_the_tip(explorer):
    explorer.x.value = 1.5
    assert explorer.plane.point[0] == 1.5


def test_another_layer_takes_the_tip_to_where_the_model_was(explorer):
    explorer.x.value = 1.5
    explorer.layer.value = 1
    torch.testing.assert_close(
        torch.tensor([explorer.view.params.x, explorer.view.params.y]), explorer.scene.walk[1]
    )
    assert "moved" not in explorer.sentence
    assert explorer.plane.layer == 1


def test_back_undoes_the_dragging(explorer):
    start = explorer.view
    explorer.plane.point = [0.3, 0.3]
    explorer.back_button.click()
    assert explorer.view == start


def test_sliders_stand_on_their_steps_or_the_page_would_move_them(explorer):
    for layer in range(LAYERS + 1):
        explorer.layer.value = layer
        for control in (explorer.x, explorer.y):
            steps = control.value / control.grid
            assert steps == pytest.approx(round(steps), abs=1e-6)


def test_other_axes_make_another_plane_and_keep_the_logits(explorer):
    before = {row.label: row.logit for row in explorer.view.rows}
    explorer.axis_x.value = "the"
    assert explorer.plane.x_title == "across: the"
    assert {row.label: row.logit for row in explorer.view.rows} == pytest.approx(before, abs=1e-4)


def test_another_prompt_is_read_and_shown(explorer, lens):
    explorer.prompt.value = " dog Paris"
    expected = lens.logits(" dog Paris")
    assert row_of(explorer, "␣the").logit == pytest.approx(expected[3].item(), abs=1e-5)


def test_reset_brings_everything_back(explorer):
    start, words = explorer.view, explorer.tokens.value
    explorer.prompt.value, explorer.axis_x.value, explorer.tokens.value = " dog", "the", "dog, <b>"
    explorer.layer.value, explorer.rest.value = 0, False
    explorer.plane.point = [0.1, 0.1]
    explorer.reset_button.click()
    assert explorer.view == start
    assert explorer.tokens.value == words


# ---- tokens -----------------------------------------------------------------------------------------------------


def test_a_found_token_is_added_once_and_shown(explorer):
    explorer.search.value = "PARIS"
    assert [token for _, token in explorer.found.options] == [0, 1]
    explorer.found.value = 1
    explorer.show_button.click()
    assert {row.label for row in explorer.view.rows} == {"␣Paris", "␣London", "␣the", "Paris"}
    explorer.show_button.click()
    assert len(explorer.view.rows) == 4


def test_a_search_for_nothing_says_so_and_leaves_the_picture_alone(explorer):
    explorer.search.value = "zebra"
    assert "zebra" in explorer.error
    assert not explorer.plane.stale
    explorer.search.value = ""
    assert explorer.error == ""
    assert explorer.show_button.disabled


def test_a_token_with_a_comma_in_its_name_goes_by_its_number(explorer):
    explorer.search.value = ","
    explorer.show_button.click()
    assert explorer.tokens.value.endswith("#9")
    assert row_of(explorer, ",").token_id == 9


def test_arrows_are_the_rows_shadows_drawn_longer(explorer):
    reach, times = frame_of(explorer.scene, [0, 2, 3])
    arrow = next(arrow for arrow in explorer.plane.arrows if arrow["label"] == "␣Paris")
    assert [arrow["x"], arrow["y"]] == pytest.approx((times * explorer.scene.columns[0]).tolist(), abs=1e-5)
    assert max(max(abs(a["x"]), abs(a["y"])) for a in explorer.plane.arrows) <= reach
    assert explorer.plane.reach == reach


def test_every_layer_but_the_embedding_is_inside_the_frame(explorer):
    assert explorer.scene.walk[1:].abs().max().item() <= explorer.plane.reach


# ---- errors: in the explorer, in words, and gone when they are mended ----------------------------------------------


@pytest.mark.parametrize(
    ("control", "value", "words"),
    [
        ("tokens", "Paris, long", "not one token"),
        ("tokens", "", f"1 to {MOST_TOKENS}"),
        ("axis_x", "dog", "same way"),
        ("axis_y", "Paris − London − dog", "one word − another"),
        ("prompt", "", "text is empty"),
    ],
)
def test_what_is_wrong_is_said_and_the_picture_is_marked_as_old(explorer, control, value, words):
    before, box = explorer.view, getattr(explorer, control)
    right = box.value
    box.value = value
    assert explorer.error
    assert words in explorer.error
    assert explorer.plane.stale
    assert explorer.view == before
    explorer.x.value = 0.5  # a move mends nothing
    assert explorer.plane.stale
    box.value = right
    assert explorer.error == ""
    assert not explorer.plane.stale


def test_whatever_a_model_raises_is_shown_with_its_kind(explorer, lens, monkeypatch):
    def out_of_memory(text):
        raise RuntimeError("no memory left")

    monkeypatch.setattr(lens, "hidden_states", out_of_memory)
    explorer.prompt.value = " dog"
    assert explorer.error.startswith("RuntimeError in line ")
    assert explorer.error.endswith("no memory left")
    assert explorer.plane.stale


def test_axes_and_tokens_to_start_with_must_be_there(lens):
    with pytest.raises(ValueError, match="not one token"):
        ProjectionExplorer(lens, prompt=TEXT, axes=("long", "the"), tokens=("the",))


def test_nothing_is_printed_by_a_callback(explorer, capsys):
    explorer.tokens.value = "long"
    explorer.plane.point = [1.0, 1.0]
    assert capsys.readouterr() == ("", "")


def test_labels_reach_the_page_as_they_are(explorer):
    explorer.tokens.value = "<b>, $x$"
    assert {arrow["label"] for arrow in explorer.plane.arrows} == {"␣<b>", "$x$"}
    assert {cells[0] for cells in explorer.plane.rows} == {"␣<b>", "$x$"}


def test_moves_from_two_threads_end_at_the_last_one_and_never_hang(explorer):
    def drag(sign):
        for step in range(1, 60):
            explorer.plane.point = [sign * step / 100, 0.0]
            explorer.y.value = sign * step / 100

    threads = [threading.Thread(target=drag, args=(sign,), daemon=True) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    explorer.x.value, explorer.y.value = 0.25, 0.75
    assert (explorer.view.params.x, explorer.view.params.y) == (0.25, 0.75)
    assert explorer.error == ""


def test_the_sliders_have_names_and_move_while_they_are_dragged(explorer):
    for control, name in ((explorer.layer, "after layer"), (explorer.x, "across"), (explorer.y, "up")):
        assert control.box.description == name
        assert control.slider.continuous_update


@pytest.mark.parametrize(
    ("value", "text"), [(-0.004, "0.00"), (-1.5, "−1.50"), (1234.5, "1,234.50"), (-0.0, "0.00")]
)
def test_a_signed_number_has_a_real_minus_and_no_negative_zero(value, text):
    assert signed(value) == text


def test_on_the_live_model_the_start_is_the_models_own_answer(lm):
    explorer = ProjectionExplorer(lm)
    assert explorer.view.best == "␣Paris"
    assert explorer.view.best_probability == pytest.approx(0.7725, abs=2e-3)
    logits = lm.logits("The capital of France is")
    assert all(abs(row.logit - logits[row.token_id].item()) < 1e-3 for row in explorer.view.rows)
    explorer.x.value = -4
    assert explorer.view.best == "␣London"


def test_reset_tries_the_first_text_again_where_that_could_not_be_read(explorer, lens):
    start, read, walk = explorer.prompt.value, lens.hidden_states, explorer.scene.walk
    explorer.prompt.value = " dog"
    assert not torch.equal(explorer.scene.walk, walk)

    def out_of_memory(text):
        raise RuntimeError("no memory left")

    lens.hidden_states = out_of_memory
    explorer.prompt.value = start
    assert "no memory left" in explorer.error
    lens.hidden_states = read
    explorer.reset_button.click()
    assert (explorer.error, explorer.plane.stale) == ("", False)
    assert torch.equal(explorer.scene.walk, walk)
