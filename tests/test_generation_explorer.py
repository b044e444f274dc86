"""The generation explorer, moved by traits and methods as a page moves it; what it shows is computed afresh."""

import dataclasses
import json
import math
import threading

import pytest
import torch

from lmhead_course import GenerationExplorer, SamplingParams, generate, process_logits
from lmhead_course.explorers import generation_view
from lmhead_course.explorers.generation import CHOICES
from lmhead_course.explorers.generation_view import power
from tests.tiny_lm import TinyLM, letters
from tests.typecheck import unchecked


def log_prob(lm, ids, token_id):
    return float(lm.step(torch.tensor([ids]))[0][0].log_softmax(-1)[token_id])


def joint(lm, prompt, ids):
    start = lm.encode(prompt)
    return math.fsum(log_prob(lm, start + ids[:place], token_id) for place, token_id in enumerate(ids))


@pytest.fixture
def lm():
    return letters(context_length=2048)


@pytest.fixture
def explorer(lm):
    return GenerationExplorer(lm, prompt="abc")


def click(explorer, what, place):
    """Do what the page does at a click on the tree."""
    explorer.tree.asked = [what, place, len(explorer.nodes) * 1000 + place]


def tokens_of(explorer):
    return [node.token_id for node in explorer.nodes[1:]]


# The tree ------------------------------------------------------------------------------------------------------------


def test_it_starts_with_the_distribution_behind_the_prompt(explorer, lm):
    expected = lm.step(torch.tensor([[0, 1, 2]]))[0][0].softmax(-1)
    rows = explorer.table.rows
    assert [row["raw"] for row in rows] == pytest.approx(sorted(expected.tolist(), reverse=True))
    assert (explorer.view.number, explorer.view.tokens, explorer.error) == (1, (), "")
    assert explorer.tree.text == "abc"


def test_a_candidate_that_is_clicked_is_read_by_the_model(explorer, lm):
    token = explorer.tree.choices[1]["token_id"]
    click(explorer, "take", token)
    assert tokens_of(explorer) == [token]
    expected = lm.step(torch.tensor([[0, 1, 2, token]]))[0][0].softmax(-1)
    assert explorer.table.rows[0]["raw"] == pytest.approx(float(expected.max()), rel=1e-5)
    assert explorer.view.number == 2


def test_the_path_probability_is_the_product_of_the_models_own(explorer, lm):
    for token in (3, 0, 6):
        explorer.take(token)
    assert explorer.view.joint == pytest.approx(joint(lm, "abc", [3, 0, 6]), rel=1e-5)
    readouts = dict(explorer.table.readouts)
    assert readouts["path probability"] == power(explorer.view.joint)
    assert readouts["tokens on the path"] == "3"


def test_the_settings_change_the_step_but_not_the_path_probability(explorer):
    explorer.take(3)
    before = explorer.view.joint
    explorer.temperature.value = 0.3
    explorer.top_k.value = 2
    assert explorer.view.joint == before
    assert explorer.view.step.kept == 2


def test_a_tokens_step_is_one_click_away_with_the_token_marked(explorer, lm):
    for token in (3, 0, 6):
        explorer.take(token)
    click(explorer, "look", 2)
    expected = lm.step(torch.tensor([[0, 1, 2, 3]]))[0][0].softmax(-1)
    assert explorer.table.rows[0]["raw"] == pytest.approx(float(expected.max()), rel=1e-5)
    assert [row["token_id"] for row in explorer.table.rows if row["drawn"]] == [0]
    assert "Step 2. “a” was taken here" in explorer.sentence
    assert explorer.view.tokens == ("d", "a")


def test_another_candidate_at_an_old_step_is_a_branch_and_the_first_way_stays(explorer, lm):
    for token in (3, 0, 6):
        explorer.take(token)
    explorer.look(2)
    explorer.take(5)
    assert [node.parent for node in explorer.nodes] == [-1, 0, 1, 2, 1]
    assert explorer.view.joint == pytest.approx(joint(lm, "abc", [3, 5]), rel=1e-5)
    assert [[item["label"] for item in line["items"]] for line in explorer.tree.lines] == [
        ["d"],
        ["a", "g"],
        ["f"],
    ]
    assert [line["depth"] for line in explorer.tree.lines] == [0, 1, 1]
    assert dict(explorer.table.readouts)["ends in the tree"] == "2"


def test_a_token_taken_before_is_gone_along_and_not_doubled(explorer):
    explorer.take(3)
    explorer.take(0)
    explorer.look(1)
    assert [c["token_id"] for c in explorer.tree.choices if c["taken"]] == [3]
    explorer.take(3)
    assert tokens_of(explorer) == [3, 0]
    assert explorer.view.number == 2
    assert explorer.view.marked is None


def test_every_line_ends_with_a_button_to_go_on_and_its_probability(explorer, lm):
    explorer.take(3)
    explorer.look(1)
    explorer.take(4)
    lines = explorer.tree.lines
    assert [line["end"] for line in lines] == [-1, 1, 2]
    assert [line["joint"] for line in lines] == ["", *(power(joint(lm, "abc", [t])) for t in (3, 4))]
    click(explorer, "behind", 1)
    assert [line["here"] for line in explorer.tree.lines] == [False, True, False]


def test_the_path_that_is_looked_at_is_marked_in_the_tree(explorer):
    for token in (3, 0):
        explorer.take(token)
    explorer.look(1)
    items = explorer.tree.lines[0]["items"]
    assert [(item["on_path"], item["marked"]) for item in items] == [(True, True), (False, False)]


def test_a_node_that_is_not_there_is_refused_in_words(explorer):
    explorer.look(7)
    assert "node must be in 0 … 0, got 7" in explorer.error
    explorer.take(99)
    assert "token_id must be in 0 … 7, got 99" in explorer.error
    explorer.take(1)
    assert explorer.error == ""


def test_a_full_tree_says_so_and_can_be_reset(explorer, monkeypatch):
    monkeypatch.setattr(generation_view, "MOST_NODES", 3)
    for _ in range(5):
        explorer.draw_button.click()
    assert len(explorer.nodes) == 4
    assert "press reset" in explorer.error
    assert "has read" in explorer.table.status
    assert not explorer.tree.busy
    assert not explorer.table.busy
    assert not explorer.table.stale, "the rows are still those of this step"
    explorer.reset_button.click()
    assert (len(explorer.nodes), explorer.error) == (1, "")


def test_rows_of_older_settings_are_told_from_those_of_the_present_ones(lm):
    broken = False

    def stage(logits, *, prompt, generated):
        if broken:
            raise KeyError("forgotten")
        return logits

    explorer = GenerationExplorer(lm, prompt="abc", params=SamplingParams(order=("temperature", stage)))
    assert (explorer.error, explorer.table.stale) == ("", False)
    broken = True
    explorer.temperature.value = 0.3
    assert "forgotten" in explorer.error
    assert explorer.table.stale
    assert "last time that all worked" in explorer.table.caption
    assert "has read" in explorer.table.status
    broken = False
    explorer.temperature.value = 0.4
    assert (explorer.error, explorer.table.stale) == ("", False)
    assert "last time" not in explorer.table.caption


def test_only_the_step_that_is_looked_at_keeps_more_than_its_logits(explorer):
    for temperature in (0.5, 0.7, 0.9):
        explorer.draw_button.click()
        explorer.temperature.value = temperature
        explorer.repetition_penalty.value = 1 + temperature
    explorer.look(1)
    fields = {field.name for field in dataclasses.fields(explorer.nodes[0].context)}
    kept = [bool(vars(node.context).keys() - fields) for node in explorer.nodes]
    assert kept == [True, False, False, False]


# Drawing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", ["prompt", "look", "look_behind"])
def test_draws_that_wait_end_where_the_learner_goes_elsewhere(lm, away):
    explorer = GenerationExplorer(lm, prompt="abc")
    go = {
        "prompt": lambda: setattr(explorer.prompt, "value", "cab"),
        "look": lambda: explorer.look(1),
        "look_behind": lambda: explorer.look_behind(1),
    }[away]
    step = lm.step

    def gone_meanwhile(*arguments, **settings):
        if len(explorer.nodes) == 3:
            lm.step = step
            go()
        return step(*arguments, **settings)

    lm.step = gone_meanwhile
    explorer.more_button.click()
    assert explorer.error == ""
    assert len(explorer.nodes) == (1 if away == "prompt" else 4)
    assert not explorer.tree.busy


def test_greedy_draws_are_what_generate_writes(explorer, lm):
    explorer.temperature.value = 0.0
    explorer.more_button.click()
    steps = generate(lm, "abc", SamplingParams(temperature=0), max_new_tokens=10)
    assert tokens_of(explorer) == [step.token_id for step in steps]


def test_seeded_draws_are_what_generate_writes_penalties_included(lm):
    params = SamplingParams(temperature=0.9, top_p=0.9, repetition_penalty=1.3, frequency_penalty=0.4)
    explorer = GenerationExplorer(lm, prompt="abc", params=params, seed=3)
    explorer.more_button.click()
    generator = torch.Generator().manual_seed(3)
    steps = generate(lm, "abc", params, max_new_tokens=10, generator=generator)
    assert tokens_of(explorer) == [step.token_id for step in steps]


def test_the_drawn_token_is_told_with_its_chance(explorer):
    explorer.temperature.value = 0.0
    explorer.draw_button.click()
    assert explorer.table.draw.startswith("Drawn: “")
    assert "number 1 of 1" in explorer.table.draw


def test_the_step_shows_what_the_settings_make_of_the_whole_path(explorer, lm):
    explorer.params = SamplingParams(presence_penalty=2.0, temperature=0.7)
    for token in (3, 0):
        explorer.take(token)
    logits = lm.step(torch.tensor([[0, 1, 2, 3, 0]]))[0][0]
    expected = process_logits(logits, explorer.params, prompt=[0, 1, 2], generated=[3, 0]).softmax(-1)
    for row in explorer.table.rows:
        assert row["final"] == pytest.approx(float(expected[row["token_id"]]), rel=1e-4)


def test_a_text_that_has_ended_is_not_grown():
    lm = TinyLM(["a", "b", ""], eos_ids=[2])
    explorer = GenerationExplorer(lm, prompt="ab")
    explorer.take(2)
    assert explorer.view.marked_id == 2
    assert explorer.tree.lines[0]["end"] == -1
    assert "ends the text" in explorer.tree.lines[0]["items"][0]["title"]
    explorer.look_behind(1)
    assert "ends the text: nothing follows" in explorer.error


def test_drawing_many_stops_where_the_text_ends():
    lm = TinyLM(["a", "b", ""], eos_ids=[2])
    explorer = GenerationExplorer(lm, prompt="ab", seed=1)
    for _ in range(5):
        explorer.more_button.click()
    ended = [place for place, node in enumerate(explorer.nodes) if node.context is None]
    parents = {node.parent for node in explorer.nodes}
    assert ended
    assert parents.isdisjoint(ended)


def test_dropped_candidates_are_marked_and_can_still_be_taken(explorer):
    explorer.temperature.value = 0.0
    assert [choice["kept"] for choice in explorer.tree.choices] == [True] + [False] * (CHOICES - 1)
    token = explorer.tree.choices[3]["token_id"]
    click(explorer, "take", token)
    assert tokens_of(explorer) == [token]


# Text, settings, trouble ---------------------------------------------------------------------------------------------


def test_a_typed_text_starts_a_new_tree(explorer, lm):
    explorer.take(1)
    explorer.prompt.value = "gg"
    assert (len(explorer.nodes), explorer.tree.text) == (1, "gg")
    expected = lm.step(torch.tensor([[6, 6]]))[0][0].softmax(-1)
    assert explorer.table.rows[0]["raw"] == pytest.approx(float(expected.max()), rel=1e-5)


def test_a_text_that_cannot_be_read_is_said_so_and_the_next_one_works(explorer):
    explorer.prompt.value = "ü"
    assert explorer.error
    assert (explorer.tree.lines, explorer.tree.choices, explorer.table.rows) == ([], [], [])
    explorer.draw_button.click()
    assert "type one" in explorer.error
    explorer.prompt.value = "ab"
    assert (explorer.error, len(explorer.table.rows)) == ("", 8)


def test_reset_brings_back_the_first_text_settings_and_draws(lm):
    explorer = GenerationExplorer(lm, prompt="abc", params=SamplingParams(temperature=0.8), seed=5)
    explorer.more_button.click()
    first = tokens_of(explorer)
    explorer.prompt.value = "gg"
    explorer.params = SamplingParams(top_k=1)
    explorer.reset_button.click()
    assert (explorer.prompt.value, explorer.params) == ("abc", SamplingParams(temperature=0.8))
    assert len(explorer.nodes) == 1
    explorer.more_button.click()
    assert tokens_of(explorer) == first


def test_the_settings_are_the_panel_of_the_sampling_explorer(explorer):
    from lmhead_course.explorers import SamplingControls

    assert isinstance(explorer.controls, SamplingControls)
    explorer.min_p.value = 0.3
    assert explorer.params.min_p == 0.3


def test_compute_changes_nothing(explorer):
    explorer.take(1)
    shown = explorer.view
    other = explorer.compute(SamplingParams(temperature=0))
    assert other.step.kept == 1
    assert explorer.view is shown
    assert explorer.table.readouts == shown.readouts


def test_everything_that_is_sent_to_the_page_is_plain_data(explorer):
    explorer.more_button.click()
    json.dumps([explorer.tree.lines, explorer.tree.choices, explorer.table.rows, explorer.table.readouts])


def test_nothing_is_printed_by_any_callback(explorer, capsys):
    explorer.take(-5)
    explorer.look_behind(3)
    explorer.prompt.value = "ü"
    explorer.more_button.click()
    explorer.reset_button.click()
    assert capsys.readouterr() == ("", "")


def test_clicks_on_several_threads_are_done_one_after_the_other(explorer):
    threads = [threading.Thread(target=explorer.draw_button.click) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(explorer.nodes) == 9
    assert [node.parent for node in explorer.nodes] == list(range(-1, 8))
    assert not explorer.tree.busy


def test_callbacks_on_another_thread_build_no_graph(lm):
    lm.head.weight.requires_grad_(True)
    explorer = GenerationExplorer(lm, prompt="abc")
    worker = threading.Thread(target=explorer.draw_button.click)
    worker.start()
    worker.join(10)
    assert explorer.error == ""
    assert not any(node.context.logits.requires_grad for node in explorer.nodes)


# Words ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_prob", "words"),
    [
        (0.0, "100.00 %"),
        (math.log(0.7725), "77.25 %"),
        (math.log(1.65e-7), "1.65 × 10⁻⁷"),
        (math.log(9.999e-12), "1.00 × 10⁻¹¹"),
        (-1000.0, "5.08 × 10⁻⁴³⁵"),
    ],
)
def test_a_path_probability_is_written_so_that_it_can_be_read(log_prob, words):
    assert power(log_prob) == words


def test_labels_that_look_like_markup_stay_as_they_are(lm):
    explorer = GenerationExplorer(TinyLM(["a", "<b>", "$x$"]), prompt="a")
    assert {choice["label"] for choice in explorer.tree.choices} == {"a", "<b>", "$x$"}


def test_a_text_typed_during_a_reset_is_read(lm):
    explorer = GenerationExplorer(lm, prompt="ab")
    explorer.draw_button.click()
    clear = explorer._turns.clear
    waiting = ["cde"]

    def clear_later():  # another thread types between the reset's own steps
        if waiting and explorer.prompt.value == "ab":
            explorer.prompt.value = waiting.pop()
        clear()

    explorer._turns.clear = clear_later
    explorer.reset_button.click()
    assert explorer.prompt.value in ("ab", "cde")
    assert (explorer.tree.text, explorer.error) == (explorer.prompt.value, "")


def test_a_token_id_may_be_any_whole_number_type():
    lm = letters(eos_ids={7})
    explorer = GenerationExplorer(lm, prompt="abc")
    with unchecked():
        explorer.take(torch.tensor(7))
    assert explorer.nodes[-1].context is None, "it ends the text"
    assert type(explorer.nodes[-1].token_id) is int
