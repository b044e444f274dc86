"""The picture of one step: drawn from the numbers it is given, and safe to show."""

import re

import pytest

from lmhead_course import draw_path


def drawn(text="The capital of France is", tokens=("The", "␣capital", "␣of", "␣France", "␣is"), **changes):
    sizes = {"d_model": 576, "d_vocab": 49_152, "n_layers": 30, "best": ("␣Paris", 0.7725)}
    return draw_path(text, list(tokens), **{**sizes, **changes})


def test_the_stations_come_in_the_order_in_which_a_text_passes_them():
    names = [stage.name for stage in drawn().stages]
    assert names == [
        *("text", "token ids", "embedding", "layers", "final norm", "last position"),
        *("head", "softmax", "sampler", "token"),
    ]


def test_every_shape_follows_from_the_sizes_given():
    shapes = {stage.name: stage.shape for stage in drawn(d_model=8, d_vocab=1000, tokens=["a", "b"]).stages}
    assert shapes["token ids"] == "(1, 2)"
    assert shapes["layers"] == "(1, 2, 8)"
    assert shapes["last position"] == "(1, 8)"
    assert shapes["head"] == shapes["softmax"] == "(1, 1,000)"
    assert shapes["token"] == "3 tokens"


def test_the_page_shows_a_list_with_every_name_and_shape_as_text():
    picture = drawn()
    html = picture._repr_html_()
    assert html.count("<li") == len(picture.stages)
    for stage in picture.stages:
        assert stage.shape in html
        assert f"<strong>{stage.name}</strong>" in html


def test_tokens_and_texts_are_never_markup():
    html = drawn(text="<script>alert(1)</script>", tokens=["<b>", "x"], best=("<i>", 0.5))._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "<i>" not in html


def test_no_colour_is_set_for_letters_or_ground_so_that_both_themes_can_be_read():
    assert not re.search(r"(?<!-)color:|background", drawn()._repr_html_())


def test_a_link_leads_from_its_station_to_its_notebook():
    html = drawn(links={"sampler": "03_sampling.ipynb"})._repr_html_()
    assert '<a href="03_sampling.ipynb">sampler</a>' in html


def test_a_link_from_a_station_that_is_not_there_is_refused_by_name():
    with pytest.raises(ValueError, match="smapler"):
        drawn(links={"smapler": "03_sampling.ipynb"})


def test_a_long_text_is_cut_and_its_tokens_are_not_all_listed():
    picture = drawn(text="a" * 200, tokens=["t"] * 50)
    assert max(len(stage.what) for stage in picture.stages) < 90
    assert picture.stages[1].shape == "(1, 50)"


def test_without_a_page_the_picture_is_readable_lines():
    lines = repr(drawn()).splitlines()
    assert len(lines) == 11
    assert "(1, 5, 576)" in lines[3]
