"""The body of the default model, a Llama, in plain torch: token ids in, residual streams out.

A body turns ids into vectors and leaves the last step, from vector to logits, to the head (``projection.py``). Each
layer adds to a *residual stream* of d_model numbers a position: first what attention fetched from earlier positions,
then what a gated MLP computed from the stream itself. Weights keep the names of the published checkpoints.

Source: Touvron et al. 2023 (arXiv:2302.13971). The tests prove it equal to the Llama of transformers.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and constants of a Llama; ``n_kv_heads`` divides ``n_heads``, ``d_head`` is even."""

    d_model: int
    d_vocab: int
    d_mlp: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    rope_base: float
    norm_eps: float


@dataclass(frozen=True)
class KVCache:
    """Keys and values of the positions seen so far: one pair (batch, n_kv_heads, position, d_head) a layer.

    A step returns a new cache and leaves the old one as it was, so that one prompt can be continued several ways.
    """

    layers: list[Pair]

    @property
    def length(self) -> int:
        """Number of positions seen."""
        return self.layers[0][0].shape[2]

    def rows(self, index: Int[Tensor, " new_batch"]) -> "KVCache":
        """Return the cache of the batch rows ``index``, repeats allowed: what beam search does after each step."""
        return KVCache([(k.index_select(0, index), v.index_select(0, index)) for k, v in self.layers])

    def crop(self, length: int) -> "KVCache":
        """Return the cache of the first ``length`` positions, without a copy: what speculative decoding takes back."""
        return KVCache([(k[:, :, :length], v[:, :, :length]) for k, v in self.layers])


class RMSNorm(nn.Module):
    """Scale a vector to root mean square 1, then by a learned weight a coordinate: weight · x / √(mean(x²) + eps).

    Source: Zhang and Sennrich 2019 (arXiv:1910.07467), eq. 4.
    """

    def __init__(self, d_model: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Return the scaled vectors, same shape and dtype."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary_table(
    positions: Int[Tensor, "batch position"], d_head: int, base: float
) -> tuple[Float[Tensor, "batch 1 position d_head"], Float[Tensor, "batch 1 position d_head"]]:
    """Return cosine and sine of the angle by which each pair of coordinates is turned at each position.

    Pair i of d_head / 2 turns by position · base^(−2i / d_head) radians: the first fast, the last slowly. The 1 is the
    axis of attention heads, which all turn alike. Source: Su et al. 2021 (arXiv:2104.09864), section 3.2.2.
    """
    pair = torch.arange(0, d_head, 2, device=positions.device, dtype=torch.float32)
    speed = 1.0 / base ** (pair / d_head)
    angle = positions[:, None, :, None] * speed
    angle = torch.cat([angle, angle], dim=-1)  # coordinate i is paired with i + d_head / 2
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn queries or keys (batch, head, position, d_head) by their position, so that q·k depends on distance only."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def positions_of(n: int, past: int, mask: Tensor | None, device: torch.device) -> Int[Tensor, "batch n"]:
    """Return the position of the last ``n`` columns: counted from the first real token, so that padding takes none."""
    if mask is None:
        return torch.arange(past, past + n, device=device)[None]
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]


def who_sees_whom(
    n: int, past: int, mask: Tensor | None, device: torch.device
) -> Bool[Tensor, "batch 1 n total"] | None:
    """Return True where a query (n of them) may look at a key (past + n of them).

    A token sees itself and everything real before it. Padding sees itself too: a softmax over nothing would be NaN.
    None stands for the two plain cases, a whole text without padding and one more token, which need no table.
    """
    if mask is None and (past == 0 or n == 1):
        return None
    query = torch.arange(past, past + n, device=device)[:, None]
    key = torch.arange(past + n, device=device)[None, :]
    seen = (key <= query)[None, None]
    return seen if mask is None else seen & mask.bool()[:, None, None, :] | (key == query)


class Attention(nn.Module):
    """Grouped-query attention: ``n_heads`` queries share ``n_kv_heads`` keys and values. Ainslie et al. 2023."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d_head = config.n_heads, config.n_kv_heads, config.d_head
        d_query, d_key = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
        self.q_proj = nn.Linear(config.d_model, d_query, bias=False)
        self.k_proj = nn.Linear(config.d_model, d_key, bias=False)
        self.v_proj = nn.Linear(config.d_model, d_key, bias=False)
        self.o_proj = nn.Linear(d_query, config.d_model, bias=False)

    def forward(self, x: Tensor, rotary: Pair, seen: Tensor | None, past: Pair | None) -> tuple[Tensor, Pair]:
        """Return what each position of x (batch, n, d_model) fetched, and the keys and values seen so far."""
        # Queries and keys are turned alike, so all heads go together: for one token, few operations count.
        heads = torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], dim=-1)
        heads = heads.view(*x.shape[:2], -1, self.d_head).transpose(1, 2)  # (batch, head, n, d_head)
        turned, v = rotate(heads[:, : -self.n_kv_heads], *rotary), heads[:, -self.n_kv_heads :]
        q, k = turned[:, : self.n_heads], turned[:, self.n_heads :]
        if past is None:
            k, v = (
                k.clone(),
                v.clone(),
            )  # a view would keep the queries in memory too, for as long as the cache
        else:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        causal = seen is None and q.shape[2] > 1  # one more token may look at everything before it
        fetched = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal, enable_gqa=True)
        return self.o_proj(fetched.transpose(1, 2).flatten(2)), (k, v)


class GatedMLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)), three matrices. Shazeer 2020 (arXiv:2002.05202), eq. 6."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.d_model, config.d_mlp, bias=False)
        self.up_proj = nn.Linear(config.d_model, config.d_mlp, bias=False)
        self.down_proj = nn.Linear(config.d_mlp, config.d_model, bias=False)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Return what the MLP adds to the stream, one position at a time."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One layer: each half reads a normed copy of the stream and adds its answer to the stream."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, x: Tensor, rotary: Pair, seen: Tensor | None, past: Pair | None) -> tuple[Tensor, Pair]:
        """Return the stream after this layer (batch, n, d_model), and its keys and values."""
        fetched, kept = self.self_attn(self.input_layernorm(x), rotary, seen, past)
        x = x + fetched
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class LlamaBody(nn.Module):
    """Everything of a Llama below its head: embedding, layers, and the final norm, which the caller applies."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.n_layers = config.n_layers
        # Weights come from a file: drawing random ones first would only cost time.
        self.embed_tokens = nn.Embedding.from_pretrained(torch.empty(config.d_vocab, config.d_model))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.d_model, config.norm_eps)

    @property
    def embedding(self) -> Float[Tensor, "d_vocab d_model"]:
        """The token embedding, one row a token."""
        return self.embed_tokens.weight

    def forward(
        self,
        ids: Int[Tensor, "batch n"],
        cache: KVCache | None = None,
        mask: Tensor | None = None,
        all_layers: bool = False,
    ) -> tuple[list[Float[Tensor, "batch n d_model"]], KVCache]:
        """Return residual streams, *before* the final norm, at the n new positions, and the grown cache.

        The list holds the stream after the last layer; with ``all_layers`` the embedding first, then every layer.
        ``mask`` (batch, past + n) is 1 at real tokens and 0 at padding, past positions included.
        """
        past = 0 if cache is None else cache.length
        n = ids.shape[1]
        positions = positions_of(n, past, mask, ids.device)
        rotary = rotary_table(positions, self.config.d_head, self.config.rope_base)
        seen = who_sees_whom(n, past, mask, ids.device)
        streams, kept = [self.embed_tokens(ids)], []
        for number, layer in enumerate(self.layers):
            x, pair = layer(streams[-1], rotary, seen, None if cache is None else cache.layers[number])
            streams = [*streams, x] if all_layers else [x]
            kept.append(pair)
        return streams, KVCache(kept)
