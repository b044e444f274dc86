import math
from dataclasses import fields

import pytest

from lmhead_course import STRATEGIES, SamplingParams, distinct, repetition, strategies
from lmhead_course.records import from_csv, to_csv
from lmhead_course.studies import (
    STORIES,
    Measured,
    Text,
    compare,
    continue_all,
    standard_error,
    summarise,
)
from tests.tiny_lm import letters


def test_distinct_is_the_share_of_different_n_grams():
    assert distinct([1, 2, 3, 4], 2) == 1
    assert distinct([1, 2, 1, 2, 1], 2) == 2 / 4
    assert distinct([5, 5, 5, 5], 1) == 1 / 4


def test_repetition_is_the_share_of_n_grams_that_were_there_before():
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)
    assert repetition([1, 1, 1, 1, 1, 1]) == pytest.approx(2 / 3)


def test_a_text_too_short_for_one_n_gram_has_no_figure():
    assert math.isnan(distinct([1], 2))
    assert math.isnan(repetition([1, 2, 3]))


def test_a_standard_error_is_the_spread_over_the_root_of_the_count():
    assert standard_error([1.0, 3.0]) == pytest.approx(2**0.5 / 2**0.5)
    assert standard_error([1.0, 3.0, math.nan]) == standard_error([1.0, 3.0])
    assert math.isnan(standard_error([1.0]))


def text(ids, log_probs, kept=(1,)):
    return Text(list(ids), list(log_probs), list(kept) * len(ids), [1.0] * len(ids))


def test_perplexity_is_weighted_by_tokens_and_not_by_texts():
    long, short = text(range(6), [-1.0] * 6), text(range(2), [-3.0] * 2)
    row = summarise("made up", [[long], [short]], step_ms=1.0)
    assert row.perplexity == pytest.approx(math.exp((6 * 1 + 2 * 3) / 8))
    assert row.perplexity_se == pytest.approx(row.perplexity * 2**0.5 / 2**0.5)
    assert (row.texts, row.tokens) == (2, 8)


def test_the_errors_are_over_prompts_so_that_more_seeds_do_not_hide_how_prompts_differ():
    same, other = text([1, 1, 1], [-1.0] * 3), text([1, 2, 3], [-1.0] * 3)
    few = summarise("made up", [[same], [other]], step_ms=1.0)
    many = summarise("made up", [[same] * 9, [other] * 9], step_ms=1.0)
    assert few.distinct_2_se == many.distinct_2_se == pytest.approx(0.25)


def test_the_continuations_carry_what_their_steps_cost_and_kept():
    first, second = continue_all(letters(), ["ab", "g"], SamplingParams(top_k=3), seed=0, max_new_tokens=7)
    assert len(first.ids) == len(second.ids) == 7
    assert first.kept == [3] * 7
    assert all(log_prob < 0 for log_prob in first.log_probs)
    assert all(ms >= 0 for ms in second.process_ms)


def test_the_study_runs_on_any_model_and_repeats_but_for_its_times():
    params = {
        "greedy": SamplingParams(temperature=0),
        "T 1": SamplingParams(),
        "top-k 2": SamplingParams(top_k=2),
    }
    runs = [compare(letters(), ["ab", "gf", "c"], params, seeds=(0, 1), max_new_tokens=10) for _ in range(2)]
    figures = [[text_figures(row) for row in rows] for rows in runs]
    assert figures[0] == figures[1]
    greedy, pure, narrow = runs[0]
    assert [greedy.texts, pure.texts] == [3, 6], "greedy needs one run only"
    assert [greedy.kept, pure.kept, narrow.kept] == [1, 8, 2]
    assert greedy.perplexity < narrow.perplexity < pure.perplexity


def text_figures(row):
    return [getattr(row, field.name) for field in fields(row) if not field.name.endswith("_ms")]


def test_a_written_table_reads_back_and_its_notes_are_skipped():
    rows = compare(letters(), ["ab"], {"T 1, with a comma": SamplingParams()}, seeds=(0,), max_new_tokens=6)
    (back,) = from_csv(Measured, to_csv(rows, ["made by hand", "twice"]))
    assert back.strategy == "T 1, with a comma"
    assert back.kept == 8
    assert back.perplexity == pytest.approx(rows[0].perplexity, rel=1e-3)
    assert math.isnan(back.perplexity_se), "one prompt has no spread"


# The stored table


def test_the_stored_table_has_a_row_for_every_strategy_in_order():
    assert [row.strategy for row in strategies()] == list(STRATEGIES)


def test_the_stored_figures_are_possible_ones():
    for row in strategies():
        runs = 1 if STRATEGIES[row.strategy].temperature == 0 else 4
        assert row.texts == runs * len(STORIES)
        assert 0 < row.tokens <= 48 * row.texts
        assert 0 < row.distinct_2 <= 1
        assert 0 <= row.repetition < 1
        assert row.perplexity > 1
        assert 1 <= row.kept <= 49_152
        numbers = [getattr(row, field.name) for field in fields(Measured)[3:]]
        assert all(math.isfinite(number) and number >= 0 for number in numbers)


def test_the_stored_table_shows_what_the_course_says_about_strategies():
    rows = {row.strategy: row for row in strategies()}
    assert rows["greedy"].repetition == max(row.repetition for row in rows.values())
    assert rows["greedy"].perplexity == min(row.perplexity for row in rows.values())
    assert rows["T 1.5"].perplexity > 10 * rows["T 1"].perplexity
    assert rows["greedy, repetition 1.2"].repetition < rows["greedy"].repetition
    assert rows["T 0.7"].perplexity < rows["top-p 0.9"].perplexity < rows["T 1"].perplexity
