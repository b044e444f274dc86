"""Cross-entropy, plain and from hidden states: the value and every gradient are those of the formula and of torch."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from lmhead_course import loss as module
from lmhead_course.loss import cross_entropy, linear_cross_entropy
from tests.strategies import quick
from tests.typecheck import refused

LIMITS = {torch.float32: 1e-5, torch.float64: 1e-10}  # of the largest entry


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles that the tests' few rows and columns fill many times over."""
    monkeypatch.setattr(module, "TILE", (4, 8))


def oracle(hidden, weight, targets, *, bias=None, ignore_index=-100, label_smoothing=0.0, reduction="mean"):
    """The definition, position by position, in plain loops; float64 and differentiable."""
    losses = []
    for state, target in zip(hidden.reshape(-1, hidden.shape[-1]), targets.flatten().tolist(), strict=True):
        logits = weight @ state + (0 if bias is None else bias)
        log_p = logits - torch.logsumexp(logits, 0)
        q = torch.full_like(log_p, label_smoothing / len(weight))
        if target == ignore_index:
            losses.append(log_p.sum() * 0)
        else:
            q[target] += 1 - label_smoothing
            losses.append(-(q * log_p).sum())
    none = torch.stack(losses).view(targets.shape)
    counted = (targets != ignore_index).sum()
    return {"none": none, "sum": none.sum(), "mean": none.sum() / counted}[reduction]


def torch_way(hidden, weight, targets, *, bias=None, **settings):
    logits = F.linear(hidden, weight, bias).reshape(-1, len(weight))
    result = F.cross_entropy(logits, targets.flatten(), **settings)
    return result.view(targets.shape) if settings.get("reduction") == "none" else result


def case(n=11, d_model=5, d_vocab=19, *, bias=True, dtype=torch.float64, seed=0, ignored=(2, 7)):
    g = torch.Generator().manual_seed(seed)
    hidden, weight = torch.randn(n, d_model, generator=g), torch.randn(d_vocab, d_model, generator=g)
    targets = torch.randint(d_vocab, (n,), generator=g)
    targets[[i for i in ignored if i < n]] = -100
    tensors = [hidden, weight] + ([torch.randn(d_vocab, generator=g)] if bias else [])
    return [t.to(dtype).requires_grad_() for t in tensors], targets


def value_and_grads(function, leaves, targets, upstream=None, **settings):
    """Return the loss and the gradient of Σ upstream · loss for each leaf."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    hidden, weight, *bias = leaves
    result = function(hidden, weight, targets, bias=bias[0] if bias else None, **settings)
    total = (result if upstream is None else result * upstream.to(result)).sum()
    return result.detach(), torch.autograd.grad(total, leaves)


def assert_close(got, expected, limit):
    scale = expected.abs().max().clamp(min=1e-6) if expected.numel() else 1
    assert got.shape == expected.shape
    assert got.numel() == 0 or float(((got - expected).abs() / scale).max()) < limit


def assert_same(leaves, targets, other=torch_way, upstream=None, limit=None, **settings):
    ours = value_and_grads(linear_cross_entropy, leaves, targets, upstream, **settings)
    theirs = value_and_grads(other, leaves, targets, upstream, **settings)
    limit = limit or LIMITS[leaves[0].dtype]
    for got, expected in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
        assert_close(got, expected, limit)


# ---- from hidden states -------------------------------------------------------------------------------------

SETTINGS = list(itertools.product((True, False), (0.0, 0.1, 1.0), ("mean", "sum", "none")))
either_way = pytest.mark.parametrize("reduction", ["sum", "none"])
"""Gradients formed in the forward pass, and tiles that both passes compute."""


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize(("bias", "smoothing", "reduction"), SETTINGS)
def test_value_and_gradients_are_those_of_torch(dtype, bias, smoothing, reduction):
    leaves, targets = case(bias=bias, dtype=dtype)
    upstream = torch.randn(len(targets), dtype=dtype) if reduction == "none" else torch.tensor(3.0)
    assert_same(leaves, targets, upstream=upstream, label_smoothing=smoothing, reduction=reduction)


@pytest.mark.parametrize(("bias", "smoothing", "reduction"), SETTINGS)
def test_value_and_gradients_are_those_of_the_definition(bias, smoothing, reduction):
    leaves, targets = case(n=5, bias=bias)
    upstream = torch.randn(len(targets)) if reduction == "none" else None
    assert_same(leaves, targets, oracle, upstream, label_smoothing=smoothing, reduction=reduction)


@quick
@given(
    st.integers(0, 13),
    st.integers(1, 6),
    st.integers(1, 25),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from(["sum", "none"]),
)
def test_sizes_that_no_tile_divides_make_no_difference(n, d_model, d_vocab, tile, smoothing, reduction):
    leaves, targets = case(n, d_model, d_vocab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TILE", tile)
        assert_same(leaves, targets, limit=1e-9, label_smoothing=smoothing, reduction=reduction)


@pytest.mark.parametrize("tile", [(5, 19), (10, 19), (3, 200)])
@pytest.mark.parametrize(("bias", "smoothing", "reduction"), SETTINGS)
def test_hidden_states_taken_several_at_a_time_do_not_mix(monkeypatch, tile, bias, smoothing, reduction):
    monkeypatch.setattr(module, "TILE", tile)  # with "mean" and "sum" 4, 6 and 11 of them are taken at a time
    leaves, targets = case(bias=bias)
    assert_same(leaves, targets, label_smoothing=smoothing, reduction=reduction)


@pytest.mark.parametrize("factor", [0.0, 0.25, 1.0, 2.0, -3.0])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_times_a_number_has_gradients_times_that_number(factor, reduction):
    assert_same(*case(), upstream=torch.tensor(factor), reduction=reduction)


def test_autograd_confirms_the_gradients_numerically():
    leaves, targets = case(n=5, d_vocab=9)
    hidden, weight, bias = leaves
    options = {"label_smoothing": 0.2, "reduction": "none"}
    assert torch.autograd.gradcheck(
        lambda h, w, b: linear_cross_entropy(h, w, targets, bias=b, **options), (hidden, weight, bias)
    )


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 3), (2, 0)])
def test_leading_dimensions_are_any_and_targets_have_the_same(shape):
    weight = torch.randn(19, 5, dtype=torch.float64)
    hidden, targets = torch.randn(*shape, 5, dtype=torch.float64), torch.randint(19, shape)
    for reduction in ("sum", "none"):
        assert_same([hidden, weight], targets, reduction=reduction)
    assert linear_cross_entropy(hidden, weight, targets, reduction="none").shape == shape


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_hidden_states_without_numbers_leave_every_token_equally_likely(reduction):
    hidden, weight = torch.zeros(2, 3, 0), torch.zeros(19, 0)
    loss = linear_cross_entropy(hidden, weight, torch.randint(19, (2, 3)), reduction=reduction)
    assert torch.allclose(loss, torch.tensor(19.0).log() * (6 if reduction == "sum" else 1))
    assert_same(*case(d_model=0), reduction=reduction)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("n", [0, 4])
def test_a_batch_of_which_nothing_counts_follows_torch(n, smoothing):
    leaves, targets = case(n, ignored=range(n))
    assert linear_cross_entropy(*leaves[:2], targets, label_smoothing=smoothing).isnan()
    for reduction in ("sum", "none"):
        assert_same(leaves, targets, label_smoothing=smoothing, reduction=reduction)
    ours = value_and_grads(linear_cross_entropy, leaves, targets, label_smoothing=smoothing)[1]
    theirs = value_and_grads(torch_way, leaves, targets, label_smoothing=smoothing)[1]
    for got, expected in zip(ours, theirs, strict=True):
        assert torch.equal(got, expected)


def test_an_ignore_index_inside_the_vocabulary_is_ignored_too():
    leaves, targets = case(ignored=())
    assert_same(leaves, targets, ignore_index=int(targets[0]), label_smoothing=0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_half_precision_is_computed_in_single_precision_and_its_gradients_keep_their_dtype(dtype, reduction):
    leaves, targets = case(dtype=dtype)
    value, grads = value_and_grads(linear_cross_entropy, leaves, targets, reduction=reduction)
    in_full = [leaf.detach().float() for leaf in leaves]
    expected, exact = value_and_grads(torch_way, in_full, targets, reduction=reduction)
    assert value.dtype == torch.float32
    assert torch.allclose(value, expected, rtol=1e-5)
    for grad, wanted in zip(grads, exact, strict=True):
        assert grad.dtype == dtype
        # One rounding at the end and no more: half a step of the dtype.
        step = torch.finfo(dtype).eps * wanted.abs().clamp(min=torch.finfo(dtype).tiny) / 2 + 1e-6
        assert ((grad.float() - wanted).abs() <= 1.05 * step).all()


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("narrow", [(0,), (1,), (2,), (1, 2), (0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_narrower_input_is_computed_in_the_wider_dtype_and_its_gradient_is_rounded_once(
    reduction, narrow, dtype
):
    leaves, targets = case()
    mixed = [leaf.detach().to(dtype) if i in narrow else leaf.detach() for i, leaf in enumerate(leaves)]
    value, grads = value_and_grads(linear_cross_entropy, mixed, targets, reduction=reduction)
    expected, exact = value_and_grads(
        torch_way, [leaf.double() for leaf in mixed], targets, reduction=reduction
    )
    assert_close(value, expected, 1e-10)
    for leaf, grad, wanted in zip(mixed, grads, exact, strict=True):
        assert grad.dtype == leaf.dtype
        assert_close(grad, wanted.to(leaf.dtype), 1e-10)


@either_way
def test_inside_autocast_nothing_is_rounded(reduction):
    leaves, targets = case(dtype=torch.float32)
    outside = value_and_grads(linear_cross_entropy, leaves, targets, reduction=reduction)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value_and_grads(linear_cross_entropy, leaves, targets, reduction=reduction)
    assert torch.equal(inside[0], outside[0])
    assert all(map(torch.equal, inside[1], outside[1]))


@either_way
def test_logits_of_any_size_do_not_overflow(reduction):
    leaves, targets = case(dtype=torch.float32)
    assert_same([leaves[0] * 1000, *leaves[1:]], targets, reduction=reduction)


@either_way
def test_a_bias_of_minus_infinity_masks_tokens_as_in_torch(reduction):
    (hidden, weight, bias), targets = case()
    masked = bias.detach().clone()
    masked[:9] = -torch.inf  # a whole tile and one more
    targets = targets.clamp(min=-100).where(targets < 0, 9 + targets % 10)
    assert_same([hidden, weight, masked], targets, reduction=reduction)


@either_way
def test_a_state_without_any_token_left_has_no_loss_as_in_torch_and_the_others_keep_theirs(reduction):
    leaves, targets = case(n=4, bias=False, ignored=())
    hidden, weight = (leaf.detach().abs() for leaf in leaves)
    hidden[1] = -torch.inf  # so are all its logits
    ours, theirs = (
        value_and_grads(function, [hidden, weight], targets, reduction=reduction)
        for function in (linear_cross_entropy, torch_way)
    )
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert ours[1][0].isnan().any(dim=1).tolist() == [False, True, False, False]


@either_way
def test_each_gradient_is_right_also_when_it_is_the_only_one_asked_for(reduction):
    leaves, targets = case()
    expected = value_and_grads(torch_way, leaves, targets, reduction=reduction)[1]
    for position, wanted in enumerate(leaves):
        hidden, weight, bias = (leaf if leaf is wanted else leaf.detach() for leaf in leaves)
        loss = linear_cross_entropy(hidden, weight, targets, bias=bias, reduction=reduction).sum()
        assert_close(torch.autograd.grad(loss, wanted)[0], expected[position], 1e-10)


def test_without_gradients_the_value_is_the_same():
    (hidden, weight, _), targets = case()
    with torch.no_grad():
        value = linear_cross_entropy(hidden, weight, targets)
    assert not value.requires_grad
    assert value == linear_cross_entropy(hidden, weight, targets)


def test_one_matrix_at_both_ends_collects_both_gradients():
    def loss(function, matrix, targets):
        return function(matrix[torch.arange(6)] * 2, matrix, targets)

    targets = torch.arange(6)
    results = []
    for function in (linear_cross_entropy, torch_way):
        matrix = torch.randn(19, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        matrix.requires_grad_()
        loss(function, matrix, targets).backward()
        results.append(matrix.grad)
    assert_close(*results, 1e-10)


class Largest(TorchDispatchMode):
    """Remember the largest tensor that any operation returned."""

    size = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_no_tensor_is_larger_than_a_tile_or_a_gradient():
    leaves, targets = case(n=64, d_model=3, d_vocab=40)
    hidden, weight, bias = leaves
    with Largest() as ours:
        linear_cross_entropy(hidden, weight, targets, bias=bias, label_smoothing=0.1).backward()
    with Largest() as naive:
        torch_way(hidden, weight, targets, bias=bias).backward()
    assert naive.size == 64 * 40
    assert ours.size <= max(hidden.numel(), weight.numel())


@pytest.mark.parametrize("requires_grad", [False, True])
def test_without_gradients_no_tensor_is_larger_than_a_tile_or_the_hidden_states(requires_grad):
    (hidden, weight), targets = case(n=17, d_model=64, d_vocab=400, bias=False)
    hidden, weight = (leaf.detach().requires_grad_(requires_grad) for leaf in (hidden, weight))
    with torch.set_grad_enabled(not requires_grad), Largest() as ours:
        linear_cross_entropy(hidden, weight, targets)
    assert ours.size <= hidden.numel()


class Products(TorchDispatchMode):
    """Add up the FLOPs of all matrix products, at two a multiply-add."""

    flops = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.name().startswith(("aten::mm", "aten::addmm")):
            left, right = args[-2:]
            self.flops += 2 * left.numel() * right.shape[1]
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("wanted", "reduction", "flops"),
    [
        ((0, 1), "mean", 6),
        ((0, 1), "sum", 6),
        ((0, 1), "none", 8),
        ((0,), "mean", 4),
        ((1,), "mean", 4),
        ((), "mean", 2),
    ],
)
def test_the_cost_is_what_the_docstring_says_and_less_where_a_gradient_is_not_asked_for(
    wanted, reduction, flops
):
    leaves, targets = case(bias=False)
    hidden, weight = (leaf.detach().requires_grad_(i in wanted) for i, leaf in enumerate(leaves))
    with Products() as counted:
        loss = linear_cross_entropy(hidden, weight, targets, reduction=reduction).sum()
        if wanted:
            loss.backward()
    assert counted.flops == flops * hidden.numel() * len(weight)


class Tiles(TorchDispatchMode):
    """Remember how many hidden states each product of logits has, and the memory that was taken for them."""

    def __init__(self, d_vocab: int):
        super().__init__()
        self.d_vocab, self.heights, self.room = d_vocab, [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.name().startswith("aten::mm"):
            self.heights.append(result.numel() / self.d_vocab)
        if function.name().startswith("aten::empty."):
            self.room = max(self.room, result.numel())
        return result


@pytest.mark.parametrize(
    ("n", "d_model", "d_vocab", "heights"),
    [
        (40, 64, 100, [14, 14, 12]),  # 16 at most, a quarter of d_model
        (50, 67, 100, [13, 13, 13, 11]),
        (1026, 2056, 3, [342, 342, 342]),  # 512 at most
        (16, 5, 10, [3, 3, 3, 3, 3, 1]),  # 3 whole rows of logits in a tile of 4 · 8
        (4, 5, 100, [1, 1, 1, 1]),
    ],
)
def test_so_many_hidden_states_are_taken_at_a_time_that_their_logits_stay_small(n, d_model, d_vocab, heights):
    leaves, targets = case(n, d_model, d_vocab, bias=False, dtype=torch.float32)
    with Tiles(d_vocab) as tiles:
        linear_cross_entropy(*leaves, targets)
    assert tiles.heights == heights
    assert tiles.room == heights[0] * d_vocab


def test_one_tile_is_all_the_memory_that_logits_take_where_they_are_computed_twice():
    leaves, targets = case(n=11, d_vocab=19)
    with Tiles(19) as tiles:
        linear_cross_entropy(*leaves[:2], targets, reduction="none")
    assert tiles.room == 4 * 8


def test_inputs_are_left_as_they_were():
    leaves, targets = case()
    before = [t.detach().clone() for t in (*leaves, targets)]
    linear_cross_entropy(leaves[0], leaves[1], targets, bias=leaves[2]).backward()
    assert all(map(torch.equal, before, (*leaves, targets)))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_second_derivative_is_refused_and_not_silently_wrong(reduction):
    (hidden, weight, _), targets = case()
    loss = linear_cross_entropy(hidden, weight, targets, reduction=reduction).sum()
    with pytest.raises(RuntimeError, match="only once"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_the_graph_can_be_kept_for_a_second_backward_with_the_same_result():
    (hidden, weight, _), targets = case()
    loss = linear_cross_entropy(hidden, weight, targets)
    first, second = (torch.autograd.grad(loss, weight, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


# ---- the formula as it stands -------------------------------------------------------------------------------


def kept_graph(reduction="mean"):
    hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    loss = linear_cross_entropy(hidden, weight, torch.arange(6), reduction=reduction)
    return hidden, weight, loss


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_each_backward_pass_through_a_kept_graph_adds_the_same_gradient(reduction):
    hidden, weight, loss = kept_graph(reduction)
    seen = []
    for _ in range(3):
        loss.backward(retain_graph=True)
        seen.append((hidden.grad.clone(), weight.grad.clone()))
    for n, grads in enumerate(seen, start=1):
        for grad, first in zip(grads, seen[0], strict=True):
            torch.testing.assert_close(grad, n * first)


def test_a_gradient_changed_in_place_does_not_reach_the_next_backward_pass():
    hidden, weight, loss = kept_graph()
    expected = [grad.clone() for grad in torch.autograd.grad(loss, (hidden, weight), retain_graph=True)]
    for grad in torch.autograd.grad(loss, (hidden, weight), retain_graph=True):
        grad.mul_(2)
    for grad in torch.autograd.grad(loss, (hidden, weight), retain_graph=True):
        grad.data.zero_()
    for grad, first in zip(torch.autograd.grad(loss, (hidden, weight)), expected, strict=True):
        torch.testing.assert_close(grad, first)


def test_a_graph_that_was_not_kept_cannot_be_walked_twice():
    _, _, loss = kept_graph()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_written_out_cross_entropy_is_torchs(smoothing, reduction):
    logits = torch.randn(7, 19, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3, 0, -100, 18, 5, 5, -100])
    settings = {"label_smoothing": smoothing, "reduction": reduction}
    ours, theirs = (f(logits, targets, **settings) for f in (cross_entropy, F.cross_entropy))
    assert torch.allclose(ours, theirs, rtol=1e-12)
    grads = [torch.autograd.grad(loss.sum(), logits)[0] for loss in (ours, theirs)]
    assert torch.allclose(*grads, atol=1e-14)


def test_the_toy_by_hand():
    logits = torch.tensor([2.3, 1.5, 3.8, 0.5, 1.2])
    assert cross_entropy(logits, torch.tensor(2)).item() == pytest.approx(0.3609, abs=1e-4)  # −ln 0.6971


def test_nothing_that_counts_gives_nan_for_the_mean_and_0_for_the_sum():
    logits, targets = torch.randn(3, 4), torch.full((3,), -100)
    assert cross_entropy(logits, targets).isnan()
    assert cross_entropy(logits, targets, reduction="sum") == 0


# ---- what is refused ----------------------------------------------------------------------------------------

HIDDEN, WEIGHT = torch.randn(3, 4), torch.randn(5, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": torch.tensor([0, 5, 1])}, ("targets", "[0, 5)", "got 5")),
        ({"targets": torch.tensor([0, -1, 1])}, ("targets", "ignore_index=-100", "got -1")),
        ({"targets": torch.tensor([0, 1])}, ("targets", "(3,)", "(2,)")),
        ({"weight": torch.randn(5, 3)}, ("hidden", "weight", "(5, 3)")),
        ({"bias": torch.randn(4)}, ("bias", "(5,)", "(4,)")),
        ({"label_smoothing": 1.5}, ("label_smoothing", "[0, 1]", "1.5")),
        ({"reduction": "max"}, ("reduction", "mean, sum, none", "max")),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change, words):
    settings = {"targets": torch.tensor([0, 1, 2]), "weight": WEIGHT} | change
    with refused(*words):
        linear_cross_entropy(HIDDEN, **settings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"targets": torch.tensor([0, 5, 1])}, ("targets", "[0, 5)", "got 5")),
        ({"targets": torch.tensor([0, -1, 1])}, ("targets", "ignore_index=-100", "got -1")),
        ({"label_smoothing": -0.1}, ("label_smoothing", "[0, 1]", "-0.1")),
        ({"reduction": "max"}, ("reduction", "mean, sum, none", "max")),
    ],
)
def test_the_written_out_form_refuses_the_same_by_name(change, words):
    settings = {"targets": torch.tensor([0, 1, 2])} | change
    with refused(*words):
        cross_entropy(HIDDEN @ WEIGHT.T, **settings)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
def test_targets_may_be_of_any_integer_dtype_also_one_too_small_to_count_the_vocabulary(dtype):
    hidden, weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(300, 3, dtype=torch.float64)
    targets = torch.tensor([5, -100, 90, 0])
    expected = F.cross_entropy(hidden @ weight.T, targets)
    assert linear_cross_entropy(hidden, weight, targets.to(dtype)).item() == pytest.approx(expected.item())
    assert cross_entropy(hidden @ weight.T, targets.to(dtype)).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.bool], ids=str)
def test_targets_that_are_no_integers_are_refused_and_not_rounded(dtype):
    targets = torch.tensor([0.0, 1.0, 1.0]).to(dtype)
    with refused("targets", "integer", dtype):
        cross_entropy(HIDDEN @ WEIGHT.T, targets)
    with refused("targets", "integer", dtype):
        linear_cross_entropy(HIDDEN, WEIGHT, targets)


def test_in_a_vocabulary_of_one_a_position_may_be_ignored_too():
    logits, targets = torch.randn(3, 1), torch.tensor([0, -100, 0])
    assert cross_entropy(logits, targets, reduction="none").tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float16), (torch.float32, torch.float64)], ids=str)
def test_hidden_states_and_weight_may_differ_in_dtype_and_each_gets_its_own_back(dtypes):
    leaves, targets = case(bias=False)
    leaves = [leaf.detach().to(dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)]
    value, grads = value_and_grads(linear_cross_entropy, leaves, targets)
    expected, exact = value_and_grads(torch_way, [leaf.double() for leaf in leaves], targets)
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    for grad, wanted, dtype in zip(grads, exact, dtypes, strict=True):
        assert grad.dtype == dtype
        assert_close(grad.double(), wanted, 20 * torch.finfo(dtype).eps)  # sums of nineteen


def test_no_tensor_is_as_wide_as_a_long_vocabulary_but_the_weights_gradient():
    (hidden, weight, bias), targets = case(n=8, d_model=3, d_vocab=200)
    with Largest() as ours:
        linear_cross_entropy(hidden, weight, targets, bias=bias).backward()
    assert ours.size == weight.numel()
