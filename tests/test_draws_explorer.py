"""The draws explorer: the tally by itself, then the explorer moved by its buttons and from the next cell."""

import base64
import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from lmhead_course import DrawsExplorer, SamplingParams, sample, toy
from lmhead_course.explorers.context import Context
from lmhead_course.explorers.draws_view import Tally
from lmhead_course.statistics import chi_square
from tests.tiny_lm import letters
from tests.typecheck import refused


def explorer(**settings) -> DrawsExplorer:
    return DrawsExplorer(logits=toy.toy_logits(), labels=toy.LABELS, **settings)


def bars(shown) -> list[float]:
    """Return the heights of the bars that the page draws, in percent."""
    heights = json.loads(shown.histogram.figure)["data"][0]["y"]
    return np.frombuffer(base64.b64decode(heights["bdata"]), heights["dtype"]).tolist()


def wrong_sampler(logits, params, *, prompt, generated, generator):
    """Draw from twice the temperature."""
    return torch.multinomial((logits / 2).softmax(-1), 1, generator=generator).squeeze(-1)


# ---- the tally ------------------------------------------------------------------------------------------


def test_draws_are_counted_however_they_are_split():
    tally = Tally(Context(toy.toy_logits()), SamplingParams(), seed=0)
    for n in (1, 5, 1000):
        list(tally.draw(n))
    assert tally.n == int(tally.counts.sum()) == 1006


def test_what_the_settings_drop_is_never_drawn():
    tally = Tally(Context(toy.toy_logits()), SamplingParams(temperature=3.0, top_k=2), seed=0)
    list(tally.draw(2000))
    assert tally.counts.nonzero().flatten().tolist() == [0, 2]


def test_our_sampler_passes_its_own_test():
    for seed in range(5):
        tally = Tally(Context(toy.toy_logits()), SamplingParams(temperature=1.5, top_p=0.95), seed=seed)
        list(tally.draw(20_000))
        assert chi_square(tally.counts, tally.probabilities).p_value > 0.001


def test_the_error_falls_about_as_one_over_the_root_of_n():
    errors = {1000: [], 100_000: []}
    for seed in range(8):
        tally = Tally(Context(toy.toy_logits()), SamplingParams(), seed=seed)
        for n, seen in errors.items():
            list(tally.draw(n - tally.n))
            seen.append(tally.error)
    ratio = sum(errors[1000]) / sum(errors[100_000])
    assert 10 / 2 < ratio < 10 * 2


def test_the_history_grows_with_the_logarithm_of_n():
    tally = Tally(Context(toy.toy_logits()), SamplingParams(), seed=0)
    list(tally.draw(10_000))
    places = [n for n, _ in tally.history]
    assert places == sorted(set(places))
    assert places[0] == 1
    assert 30 < len(places) < 60


def test_a_large_vocabulary_is_drawn_in_small_pieces():
    sizes = []

    def watched(logits, params, **rest):
        sizes.append(logits.numel())
        return sample(logits, params, **rest)

    tally = Tally(Context(torch.zeros(50_000)), SamplingParams(), seed=0, sampler=watched)
    list(tally.draw(5))
    assert max(sizes) * 8 <= 64 * 2**20


# ---- the explorer ---------------------------------------------------------------------------------------


def test_before_the_first_draw_only_the_marks_are_there():
    shown = explorer()
    assert shown.sentence.startswith("Nothing is drawn yet")
    assert bars(shown) == [0] * 5


def test_the_marks_are_the_exact_probabilities():
    expected = dict(zip(explorer().view.labels, explorer().view.expected, strict=True))
    assert {label: round(100 * share, 2) for label, share in expected.items()} == {
        "不错 (not bad)": 69.71,
        "很 (very)": 15.55,
        "好 (good)": 6.99,
        "差 (poor)": 5.18,
        "真 (really)": 2.57,
    }


@pytest.mark.parametrize("n", [1, 100, 10_000])
def test_a_button_draws_as_many_as_it_says(n):
    shown = explorer()
    shown.buttons[n].click()
    shown.buttons[n].click()
    assert shown.view.n == 2 * n


def test_the_bars_are_the_shares_of_the_draws():
    shown = explorer()
    shown.draw(200)
    assert sum(bars(shown)) == pytest.approx(100)
    assert bars(shown) == pytest.approx([100 * share for share in shown.view.observed])


def test_tokens_without_a_bar_share_one():
    shown = DrawsExplorer(logits=torch.zeros(20), top=4)
    shown.draw(1000)
    assert shown.view.labels[-1] == "(16 others)"
    assert shown.view.expected[-1] == pytest.approx(0.8)
    assert sum(shown.view.observed) == pytest.approx(1)


def test_reset_begins_again_with_the_same_draws():
    shown = explorer()
    shown.draw(50)
    first = shown.view
    shown.reset_button.click()
    assert shown.view.n == 0
    shown.draw(50)
    assert shown.view == first


def test_another_seed_gives_other_draws():
    one, two = explorer(seed=1), explorer(seed=2)
    one.draw(1000)
    two.draw(1000)
    assert one.view.observed != two.view.observed


def test_new_settings_begin_again():
    shown = explorer()
    shown.draw(10)
    shown.params = SamplingParams(top_k=1)
    assert (shown.view.n, shown.view.expected[0]) == (0, 1.0)


def test_one_token_that_is_left_needs_no_test():
    shown = explorer(params=SamplingParams(temperature=0.0))
    shown.draw(10)
    assert shown.sentence.startswith("Only one token can come")


def test_compute_changes_nothing_on_show():
    shown = explorer()
    view = shown.compute(SamplingParams(), draws=500)
    assert (view.n, shown.view.n) == (500, 0)
    with pytest.raises(FrozenInstanceError):
        view.n = 3


def test_the_sentence_names_the_token_that_is_furthest_off():
    shown = explorer()
    shown.draw(1)
    assert "at “差 (poor)”: 100.00 % came, 5.18 % should" in shown.sentence


def test_the_figures_name_chi_square_and_its_p_value():
    shown = explorer()
    shown.draw(10_000)
    figures = dict(shown.words.readouts)
    assert figures["chi-square"].endswith("(4 df)")
    assert float(figures["p-value"]) == pytest.approx(shown.view.fit.p_value, abs=5e-4)


def test_labels_reach_plotly_escaped():
    shown = DrawsExplorer(logits=[1.0, 0.0], labels=["<b>x</b>", "$x$"])
    names = json.loads(shown.histogram.figure)["layout"]["xaxis"]["ticktext"]
    assert names == ["&lt;b&gt;x&lt;/b&gt;", "&#36;x&#36;"]


def test_long_labels_get_room_below_and_take_none_from_the_bars():
    short, long = (
        json.loads(DrawsExplorer(logits=[1.0, 0.0], labels=["a", name]).histogram.figure)["layout"]
        for name in ("b", "␣incomprehensibilities")
    )
    more = long["margin"]["b"] - short["margin"]["b"]
    assert more > 40
    assert long["height"] - short["height"] == more


def test_a_language_model_is_read_once():
    lm = letters()
    shown = DrawsExplorer(lm, prompt="abc", top=3)
    shown.draw(100)
    assert len(lm.calls) == 1
    assert shown.view.labels[0] == lm.label(int(lm.logits("abc").argmax()))


# ---- a learner's own sampler ----------------------------------------------------------------------------


def test_ours_as_a_learners_sampler_passes():
    shown = explorer(sampler=sample, params=SamplingParams(top_p=0.9))
    shown.draw(5000)
    assert shown.error == ""
    assert shown.view.fit.p_value > 0.001


def test_a_sampler_that_draws_something_else_is_found_out():
    shown = explorer(sampler=wrong_sampler)
    shown.draw(2000)
    assert "do not trust this one" in shown.sentence


def test_a_sampler_that_draws_a_dropped_token_is_found_out():
    shown = explorer(sampler=wrong_sampler, params=SamplingParams(top_k=2))
    shown.draw(2000)
    assert "A token came that has the probability 0" in shown.sentence


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda n: [0] * n, "got list"),
        (lambda n: torch.zeros(n), "got torch.float32"),
        (lambda n: torch.zeros(n, dtype=torch.complex64), "got torch.complex64"),
        (lambda n: torch.zeros(n, dtype=torch.bool), "got torch.bool"),
        (lambda n: torch.zeros(n, 1, dtype=torch.long), "1)"),
        (lambda n: torch.full((n,), 5), "they must be 0 to 4"),
    ],
    ids=["a list", "floats", "complex numbers", "truth values", "a column", "an id too large"],
)
def test_a_result_that_is_no_row_of_ids_is_told_in_words(result, words):
    shown = explorer(sampler=lambda logits, params, **rest: result(len(logits)))
    shown.draw(10)
    assert words in shown.error


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("d_vocab", [300, 49_152])
def test_ids_may_have_any_integer_dtype_also_one_too_small_to_count_the_vocabulary(dtype, d_vocab):
    logits = torch.zeros(d_vocab).index_fill(0, torch.tensor([100]), 100.0)
    shown = DrawsExplorer(
        logits=logits, sampler=lambda logits, params, **rest: sample(logits, params, **rest).to(dtype)
    )
    shown.draw(5)
    assert shown.error == ""
    assert shown.view.observed[0] == 1


def test_an_exception_in_the_sampler_is_shown_and_the_buttons_work_again():
    def broken(logits, params, **rest):
        raise KeyError("oops")

    shown = explorer(sampler=broken)
    shown.draw(10)
    assert "KeyError" in shown.error
    assert not any(button.disabled for button in shown.buttons.values())


def test_a_sampler_that_works_in_place_harms_nobody():
    def in_place(logits, params, *, prompt, generated, generator):
        logits[:, 1:] = -math.inf
        return logits.argmax(-1)

    shown = explorer(sampler=in_place)
    shown.draw(10)
    assert shown.view.expected == explorer().view.expected


def test_nothing_is_printed(capsys):
    shown = explorer(sampler=wrong_sampler)
    shown.draw(100)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("given", [{}, {"lm": True, "logits": [1.0, 2.0]}])
def test_a_model_or_logits_are_needed_and_not_both(given):
    given = {name: letters() if name == "lm" else value for name, value in given.items()}
    with refused("DrawsExplorer needs a language model or logits, and not both"):
        DrawsExplorer(**given)


def test_a_sampler_that_draws_where_only_one_token_can_come_is_found_out():
    def uniform(logits, params, *, prompt, generated, generator):
        return torch.randint(logits.shape[-1], logits.shape[:-1], generator=generator)

    shown = explorer(params=SamplingParams(temperature=0), sampler=uniform)
    shown.draw(100)
    assert "A token came that has the probability 0" in shown.sentence
    assert "nothing to test" not in shown.sentence


def test_buttons_come_back_where_showing_is_interrupted(monkeypatch):
    shown = explorer()

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(shown, "_show", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shown.draw(5)
    assert not shown.words.busy
    assert not any(button.disabled for button in (*shown.buttons.values(), shown.reset_button))
