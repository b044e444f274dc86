"""Changes from several threads, made one at a time."""

import threading

import torch

from lmhead_course.explorers.turns import Turns, trouble_of


def test_a_change_made_while_another_is_made_gets_its_turn_after_it():
    made = []

    def perform(name):
        if name == "outer":
            turns.add("inner")
        made.append(name)

    turns = Turns(perform)
    turns.add("outer")
    assert made == ["outer", "inner"]


def test_a_thread_that_finds_another_at_work_leaves_its_change_and_goes():
    started, go_on, made = threading.Event(), threading.Event(), []

    def perform(name):
        if name == "slow":
            started.set()
            go_on.wait(10)
        made.append((name, threading.current_thread()))

    turns = Turns(perform)
    worker = threading.Thread(target=turns.add, args=("slow",))
    worker.start()
    started.wait(10)
    turns.add("left")  # would never come back if it waited: nobody has set go_on yet
    assert not turns.mine
    go_on.set()
    worker.join(10)
    assert made == [("slow", worker), ("left", worker)]


def test_what_goes_wrong_is_told_in_words_and_never_leaves():
    def refuse():
        raise ValueError("k must be positive")

    assert trouble_of(refuse) == "k must be positive"
    said = trouble_of(lambda: 1 / 0)
    assert said.startswith("ZeroDivisionError in line ")  # the learner's own
    assert said.endswith(": division by zero")
    assert trouble_of(lambda: None) == ""


def test_changes_are_made_without_gradients_on_whatever_thread_they_come():
    seen = []
    trouble_of(lambda: seen.append(torch.is_grad_enabled()))
    assert seen == [False]
