"""A head over several processes: the same numbers as in one, and no waiting for one that is gone."""

import os
import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from lmhead_course import SamplingParams, parallel, sample
from lmhead_course.parallel import PeerError, bounds, vocab_parallel
from tests.typecheck import refused


def case(n=7, d_vocab=31, d_model=5):
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(n, d_model, generator=g), torch.randn(d_vocab, d_model, generator=g)
    return hidden, weight, torch.randint(d_vocab, (n,), generator=g)


def generator():
    return torch.Generator().manual_seed(3)


def children() -> set[str]:
    """Return the ids of this process's children, dead ones that nobody asked for among them."""
    found = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    return {line.split()[0] for line in found.stdout.splitlines() if " ps " not in f" {line} "}


@pytest.mark.parametrize("processes", [2, 3])
def test_shards_together_give_what_one_process_gives(processes):
    hidden, weight, targets = case()
    found = vocab_parallel(hidden, weight, targets, processes=processes, generator=generator())
    hidden.requires_grad_(), weight.requires_grad_()
    logits = F.linear(hidden, weight)
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    assert torch.allclose(found.probabilities, logits.softmax(-1), atol=1e-6)
    assert torch.allclose(found.loss, loss, atol=1e-6)
    assert torch.allclose(found.grad_hidden, hidden.grad, atol=1e-6)
    assert torch.allclose(found.grad_weight, weight.grad, atol=1e-6)
    assert torch.equal(found.samples, sample(logits.detach(), SamplingParams(), generator=generator()))


def test_draws_of_many_positions_are_those_of_one_process_and_come_from_every_shard():
    hidden, weight, targets = case(n=400)
    found = vocab_parallel(hidden, weight / 4, targets, generator=generator()).samples
    assert torch.equal(found, sample(hidden @ weight.T / 4, SamplingParams(), generator=generator()))
    assert (found < 15).any()
    assert (found >= 15).any()


def test_what_is_sent_does_not_grow_with_the_vocabulary():
    sent = vocab_parallel(*case(n=4, d_vocab=1000)).sent
    assert sent == {
        "maximum, sum, target's logit": 4 * 3 * 4,
        "gradient of the hidden states": 4 * 5 * 4,
        "sampling: mass of the shard": 4 * 8,
        "sampling: the token": 4 * 8,
    }


@pytest.mark.parametrize(("fault", "words"), [("dies", "died"), ("hangs", "did not answer within 2 s")])
def test_a_peer_that_is_gone_ends_in_an_error_in_time_and_leaves_nothing_behind(fault, words):
    before, start = children(), time.monotonic()
    with pytest.raises(PeerError, match=f"process 1 of 2 {words}") as caught:
        vocab_parallel(*case(), timeout=2, fault=fault)
    assert time.monotonic() - start < parallel.START_TIMEOUT + 2 + parallel.GRACE
    assert 0 in caught.value.reports  # its peer noticed by itself
    assert children() == before


def test_a_process_that_fails_says_why():
    hidden, weight, targets = case()
    with pytest.raises(PeerError, match="failed"):
        vocab_parallel(hidden, weight.double(), targets, timeout=5)


def test_the_one_that_died_is_named_also_where_only_another_is_late(tmp_path):
    # It had left its file of the stage; the other had not yet, and could not reach it.
    (tmp_path / "said0").write_text("RuntimeError: Gloo connectFullMesh failed: closed by peer\n")
    (tmp_path / "said1").write_text("")
    ended = [subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"]) for code in (1, 9)]
    for process in ended:
        process.wait(30)
    error = parallel._peer_error(tmp_path, ended, late=[0], seconds=2)
    assert "process 1 of 2 died (exit code 9)" in str(error)
    assert "Gloo" in error.reports[0]


def test_when_all_goes_well_nothing_is_left_behind_either():
    before = children()
    vocab_parallel(*case(), processes=1)
    assert children() == before


def test_shards_share_the_rows_evenly_and_leave_none_out():
    assert bounds(10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert bounds(2, 2) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"processes": 0}, ("processes", "[1, 31]", "0")),
        ({"processes": 32}, ("processes", "32")),
        ({"fault": "sings"}, ("fault", "dies, hangs", "sings")),
    ],
)
def test_what_can_not_be_is_refused_by_name(settings, words):
    with refused(*words):
        vocab_parallel(*case(), **settings)
