"""The rehearsal of a class: what of it needs no hub. The whole is ``python -m benchmarks.classroom``."""

import itertools
import threading
import time

import pytest
import torch
import zmq

from benchmarks import class_learner, class_privacy, classroom
from benchmarks.class_learner import Answer, Hand, Move, Page
from lmhead_course import SamplingExplorer

LOGITS = 3 * torch.randn(200, generator=torch.Generator().manual_seed(0))
FIELDS = {"temperature": "temperature", "top-k": "top_k", "top-p": "top_p", "min-p": "min_p"}


@pytest.fixture
def explorer():
    return SamplingExplorer(logits=LOGITS)


def page_of(explorer):
    """A page that has heard of every widget of an explorer, as the kernel tells of it."""
    page, waiting = Page(), [explorer]
    while waiting:
        widget = waiting.pop()
        waiting += getattr(widget, "children", ())
        content = {"comm_id": widget.model_id, "data": {"state": widget.get_state()}}
        content["data"]["state"].update(
            {"children": [f"IPY_MODEL_{child.model_id}" for child in getattr(widget, "children", ())]}
        )
        page.hear({"kind": "comm_open", "content": content})
    return page


def answer_of(explorer):
    """The answer that an explorer gives to its present settings."""
    positions = {name: getattr(explorer, field).slider.value for name, field in FIELDS.items()}
    return Answer(positions, explorer.table.rows, 0.01, 0.01)


def test_a_percentile_is_a_value_that_so_many_percent_do_not_exceed():
    assert classroom.percentile(list(range(100, 0, -1)), 95) == 95
    assert classroom.percentile([3.0, 1.0, 2.0], 95) == 3.0
    assert classroom.percentile([7.0], 95) == 7.0


@pytest.mark.parametrize("seed", range(16))
def test_a_hand_drags_for_a_second_and_rests_for_one_or_two(seed):
    moves = class_learner.moves_of(60, seed)
    gaps = [later.at - earlier.at for earlier, later in itertools.pairwise(moves)]
    pauses = [gap for gap in gaps if gap > 0.5]
    assert len(moves) / len(pauses) >= 5
    assert all(0.1 - 1e-9 <= gap <= 0.2 + 1e-9 for gap in gaps if gap <= 0.5)  # 5 to 10 moves a second
    assert all(1.1 - 1e-9 <= pause <= 2.2 + 1e-9 for pause in pauses)
    assert 0 < moves[0].at < moves[-1].at <= 60


def test_two_learners_move_differently_and_each_the_same_way_again():
    first = class_learner.moves_of(60, 0)
    assert class_learner.moves_of(60, 0) == first
    assert class_learner.moves_of(60, 1) != first


def test_one_drag_moves_one_slider():
    moves = class_learner.moves_of(60, 3)
    pairs = [(a, b) for a, b in itertools.pairwise(moves) if b.at - a.at < 0.5]
    assert pairs
    assert all(a.slider == b.slider for a, b in pairs)


def test_a_page_finds_the_sliders_and_the_table_of_the_explorer(explorer):
    page = page_of(explorer)
    assert page.table == explorer.table.model_id
    for name, field in FIELDS.items():
        assert page.slider(name) == getattr(explorer, field).slider.model_id


@pytest.mark.parametrize(
    "positions",
    [
        {"temperature": 70, "top-k": 12, "top-p": 90, "min-p": 3},
        {"temperature": 30, "top-k": 5, "top-p": 100, "min-p": 0},
    ],
)
def test_positions_of_sliders_mean_what_they_mean_in_the_explorer(explorer, positions):
    for name, position in positions.items():
        getattr(explorer, FIELDS[name]).slider.value = position
    assert classroom.settings_of(positions, len(LOGITS)) == explorer.params


def test_the_answer_of_the_explorer_is_right(explorer):
    explorer.temperature.slider.value = 61
    explorer.top_p.slider.value = 87
    assert classroom.trouble_with(answer_of(explorer), LOGITS) == ""


def test_an_answer_to_an_earlier_position_is_wrong(explorer):
    old = answer_of(explorer)
    late = Answer({**old.positions, "temperature": old.positions["temperature"] + 1}, old.rows, 0.01, 0.01)
    assert "is right" in classroom.trouble_with(late, LOGITS)


def test_an_answer_meant_for_another_learner_is_wrong(explorer):
    assert "most likely tokens" in classroom.trouble_with(answer_of(explorer), LOGITS.flip(0))


class SlowKernel:
    """A line to a kernel that takes its time and then says only that it is idle."""

    def __init__(self, seconds):
        self.seconds, self.sent, self.busy_with = seconds, [], None

    def send(self, kind, content, subshell):
        self.sent.append(content["data"]["state"]["value"])
        self.busy_with, self.ready = f"m{len(self.sent)}", time.perf_counter() + self.seconds
        return self.busy_with

    def receive(self, seconds):
        left = self.ready - time.perf_counter() if self.busy_with else float("inf")
        time.sleep(max(min(left, seconds), 0))
        if left > seconds:
            return None
        done, self.busy_with = self.busy_with, None
        return {"kind": "status", "parent": done, "content": {"execution_state": "idle"}}


def test_a_move_that_waits_is_overtaken_and_times_count_from_the_hand(explorer):
    kernel = SlowKernel(seconds=0.2)
    hand = Hand(kernel, page_of(explorer), "subshell")
    hand.follow([Move(0.0, "top-p", 0.9), Move(0.05, "top-p", 0.8), Move(0.1, "top-p", 0.7)])
    assert kernel.sent == [90, 70]
    assert hand.overtaken == 1
    # The second message left when the first was answered, after 0.2 s, and was answered 0.2 s later: 0.3 s after 0.1.
    assert hand.answers[1].seconds > 0.29


def test_a_handle_that_stands_still_sends_nothing(explorer):
    kernel = SlowKernel(seconds=0.01)
    hand = Hand(kernel, page_of(explorer), "subshell")
    hand.follow([Move(0.0, "top-p", 0.9), Move(0.05, "top-p", 0.9)])
    assert kernel.sent == [90]


ROLLUP = """55d0-7ffe ---p 00000000 00:00 0                          [rollup]
Rss:             1000 kB
Pss:              500 kB
Shared_Clean:     300 kB
Shared_Dirty:     100 kB
Private_Clean:     50 kB
Private_Dirty:    250 kB
"""


def test_memory_is_read_as_linux_writes_it():
    memory = classroom.parsed_memory(ROLLUP)
    units = (memory.private, memory.dirty, memory.shared, memory.fair)
    assert units == pytest.approx([0.3072, 0.256, 0.4096, 0.512])


def rehearsal(count, private, dirty):
    kernels = [classroom.Memory(private, dirty, 600, 300)] * count
    return classroom.Rehearsal([None] * count, kernels, kernels, 1.0, 0.1, 0.0)


def test_a_kernel_with_too_much_of_its_own_fails_the_rehearsal():
    assert classroom.goals_missed(rehearsal(2, private=240, dirty=230)) == []
    assert "260 MB" in classroom.goals_missed(rehearsal(2, private=260, dirty=230))[0]


def test_a_lone_kernel_is_judged_by_what_it_wrote_because_it_shares_with_nobody():
    assert classroom.goals_missed(rehearsal(1, private=800, dirty=240)) == []
    assert classroom.goals_missed(rehearsal(1, private=800, dirty=260))


def test_whatever_was_seen_or_went_wrong_fails_the_rehearsal():
    found = rehearsal(2, private=240, dirty=230)
    found.seen.append("a reached of b: its notes")
    found.errors.append("b: TimeoutError")
    assert classroom.goals_missed(found) == ["b: TimeoutError", "a reached of b: its notes"]


def test_a_learner_that_listens_at_an_open_port_is_noticed():
    # Else a rehearsal on Jupyter's own, open ports would say that nobody saw anything.
    tools = {}
    exec(class_privacy.PRYING, tools)
    with zmq.Context() as context, context.socket(zmq.PUB) as kernel:
        port = kernel.bind_to_random_port("tcp://127.0.0.1")
        listener = threading.Thread(target=tools["listen"], args=([port], b"secret", 10))
        listener.start()
        while listener.is_alive():
            kernel.send_multipart([b"stream", b"a secret output"])
            time.sleep(0.02)
        listener.join()
    assert tools["reached"] == ["its kernel's outputs, by the port"]
