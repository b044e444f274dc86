"""From a hidden state to logits: the head itself."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


def unembed(
    hidden: Float[Tensor, "*batch d_model"],
    weight: Float[Tensor, "d_vocab d_model"],
    bias: Float[Tensor, " d_vocab"] | None = None,
    *,
    scale: float = 1.0,
    soft_cap: float | None = None,
) -> Float[Tensor, "*batch d_vocab"]:
    """Return one logit for every token of the vocabulary, for every hidden state.

    A logit is the dot product of the hidden state with that token's row of ``weight``, times ``scale``, plus
    ``bias``. With a ``soft_cap`` c it then becomes c · tanh(logit / c), which lies inside (−c, c).

    Shapes: ``hidden`` (…, d_model), ``weight`` (d_vocab, d_model), as ``nn.Linear`` stores it, result (…, d_vocab)
    in the dtype of ``hidden``. Cost: 2 · d_model · d_vocab FLOPs a hidden state.

    Source: Press and Wolf 2017 (arXiv:1608.05859) for the shared matrix; Gemma 2 (arXiv:2408.00118) for the cap.
    """
    logits = nn.functional.linear(hidden, weight)
    if scale != 1.0:
        logits = logits * scale
    if bias is not None:
        logits = logits + bias
    return logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)


class LMHead(nn.Module):
    """The output head of a language model: d_model numbers in, one logit for each of d_vocab tokens out.

    ``weight`` is (d_vocab, d_model), ``bias`` (d_vocab,) or None. A ``Parameter`` is used as it is, so
    ``LMHead(embedding.weight)`` is a tied head; a plain tensor is wrapped without a copy and takes no gradient.

    Raises ``ValueError`` for a weight that is no matrix, a bias of another length, or a cap that is not positive.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, *, scale: float = 1.0, soft_cap: float | None = None
    ):
        super().__init__()
        if weight.ndim != 2:
            raise ValueError(f"weight must have shape (d_vocab, d_model), got {tuple(weight.shape)}")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(
                f"bias must have shape ({weight.shape[0]},), one a token, got {tuple(bias.shape)}"
            )
        if soft_cap is not None and not soft_cap > 0:
            raise ValueError(f"soft_cap must be positive, or None for no cap, got {soft_cap}")
        self.weight = _as_parameter(weight)
        self.bias = None if bias is None else _as_parameter(bias)
        self.scale = scale
        self.soft_cap = soft_cap

    @property
    def d_vocab(self) -> int:
        """Number of tokens (rows of the weight)."""
        return self.weight.shape[0]

    @property
    def d_model(self) -> int:
        """Size of a hidden state (columns of the weight)."""
        return self.weight.shape[1]

    def forward(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """Return the logits of every hidden state, see ``unembed``."""
        return unembed(hidden, self.weight, self.bias, scale=self.scale, soft_cap=self.soft_cap)

    def extra_repr(self) -> str:
        """Return what ``print(head)`` shows between the brackets."""
        return f"d_model={self.d_model}, d_vocab={self.d_vocab}, scale={self.scale}, soft_cap={self.soft_cap}"


def last_position(
    hidden: Float[Tensor, "batch position d_model"],
    mask: Int[Tensor, "batch position"] | Bool[Tensor, "batch position"] | None = None,
) -> Float[Tensor, "batch d_model"]:
    """Return the hidden state at the last real token of every row: all that the next token needs.

    ``mask`` is 1 (or True) at real tokens and 0 at padding, which may stand left or right; without it every token
    is real. Raises ``ValueError`` for a row that is padding only, or for no positions at all.
    """
    batch, positions, _ = hidden.shape
    if positions == 0:
        raise ValueError("hidden must have at least one position, got none")
    if mask is None:
        return hidden[:, -1]
    if not mask.any(dim=1).all():
        empty = (~mask.any(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"mask must mark at least one real token in every row; rows {empty} have none")
    # The last 1 of a row is the first 1 of the row read backwards.
    last = positions - 1 - mask.int().flip(1).argmax(dim=1)
    return hidden[torch.arange(batch, device=hidden.device), last]


def length_and_angle(
    hidden: Float[Tensor, " d_model"], weight: Float[Tensor, "d_vocab d_model"]
) -> tuple[Float[Tensor, " d_vocab"], Float[Tensor, " d_vocab"]]:
    """Return the length of every token's row, and its angle to the hidden state in degrees.

    They take a logit apart: (hidden · row) = |hidden| · |row| · cos(angle). Shapes: ``hidden`` (d_model,), ``weight``
    (d_vocab, d_model), both results (d_vocab,). A row or a hidden state of length 0 is put at 90°, as its logit is 0.
    """
    lengths = weight.norm(dim=-1)
    cosines = (weight @ hidden) / (lengths * hidden.norm()).clamp(min=torch.finfo(weight.dtype).tiny)
    return lengths, torch.rad2deg(torch.acos(cosines.clamp(-1.0, 1.0)))


def _as_parameter(tensor: Tensor) -> nn.Parameter:
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)
