"""The shapes of published models, from ``catalog.toml``, and how many parameters follow from a shape.

Every formula counts one layer matrix by matrix, so that each term can be checked against the model's paper. d is
d_model, V is d_vocab, and an n × m matrix has n · m parameters whatever its orientation.
"""

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

UNITS = {"M": 1e6, "B": 1e9}


@dataclass(frozen=True)
class Model:
    """One published model: the sizes that its head has, ``shape`` for the rest of its family's formula, its source.

    ``tied`` is "yes", "no" or "not stated"; ``stated`` is the number of parameters in print ("175 B", "134,515,008").
    """

    name: str
    family: str
    d_model: int
    d_vocab: int
    layers: int
    tied: str
    stated: str
    source: str
    shape: dict = field(default_factory=dict, hash=False)
    note: str = ""

    @property
    def one_matrix(self) -> int:
        """The parameters of one V × d matrix: the head without its bias, or the input embedding."""
        return self.d_vocab * self.d_model

    @property
    def parts(self) -> dict[str, int]:
        """The parameters, by part: input embedding, the head's own (0 where it is tied), and the body."""
        head = self.one_matrix if self.tied == "no" else 0
        extra, body = FAMILIES[self.family](self)
        return {"embedding": self.one_matrix, "head": head + extra, "body": body}

    @property
    def total(self) -> int:
        """All parameters; one that serves both ends is counted once. "Not stated" is counted as tied."""
        return sum(self.parts.values())

    @property
    def share(self) -> float:
        """The share of one V × d matrix in all parameters (an untied model has two)."""
        return self.one_matrix / self.total

    @property
    def agrees(self) -> bool:
        """Whether ``total``, rounded as ``stated`` is, gives ``stated``."""
        number, _, unit = self.stated.partition(" ")
        digits = len(number.partition(".")[2])
        return f"{self.total / UNITS.get(unit, 1):,.{digits}f}" == number


@dataclass(frozen=True)
class Device:
    """Peak rates of a machine: ``bandwidth`` in bytes a second, ``flops`` in FLOPs a second."""

    name: str
    bandwidth: float
    flops: float
    source: str = ""


@lru_cache
def _read() -> dict:
    return tomllib.loads(files(__package__).joinpath("catalog.toml").read_text(encoding="utf-8"))


def models() -> dict[str, Model]:
    """Return all models of the catalog by name, in the order of the file."""
    return {row["name"]: Model(**row) for row in _read()["model"]}


def devices() -> dict[str, Device]:
    """Return all devices of the catalog by name, in the order of the file."""
    return {row["name"]: Device(**row) for row in _read()["device"]}


def model(name: str) -> Model:
    """Return one model. Raises ``ValueError`` for a name that is not in the catalog."""
    if name not in models():
        raise ValueError(f"name must be one of {', '.join(models())}, got {name!r}")
    return models()[name]


# Each family returns what its head has beside the matrix, and all the rest: positions, layers, final norm.


def _gpt2(m: Model) -> tuple[int, int]:
    d = m.d_model
    # Queries, keys, values and output 4 d², MLP 8 d²; biases 4 d + 5 d; two norms of 2 d.
    layer = 12 * d * d + 13 * d
    return 0, m.shape["context"] * d + m.layers * layer + 2 * d


def _bert(m: Model) -> tuple[int, int]:
    d, ff = m.d_model, m.shape["d_ff"]
    layer = 4 * (d * d + d) + (d * ff + ff) + (ff * d + d) + 4 * d
    head = (d * d + d) + 2 * d + m.d_vocab  # dense transform, norm, bias
    return head, (m.shape["context"] + m.shape["segments"]) * d + 2 * d + m.layers * layer


def _t5(m: Model) -> tuple[int, int]:
    d, s = m.d_model, m.shape
    attention, mlp = 4 * d * s["heads"] * s["head_dim"], s["mlp_matrices"] * d * s["d_ff"]
    encoder = attention + mlp + 2 * d
    decoder = 2 * attention + mlp + 3 * d  # it also attends to the encoder
    positions = 2 * s["buckets"] * s["heads"]  # a bias, learned once for each side
    return 0, m.layers * (encoder + decoder) + positions + 2 * d


def _gated(m: Model) -> tuple[int, int]:
    d, s = m.d_model, m.shape
    queries, keys = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    attention = 2 * d * queries + 2 * d * keys  # queries and output; keys and values
    attention += (queries + 2 * keys) * s.get("qkv_bias", False) + 2 * s["head_dim"] * s.get("qk_norm", False)
    layer = attention + 3 * d * s["d_ff"] + s.get("norms", 2) * d  # gate, up, down
    return 0, m.layers * layer + d


def _deepseek(m: Model) -> tuple[int, int]:
    d, s = m.d_model, m.shape
    q_rank, kv_rank, heads = s["q_rank"], s["kv_rank"], s["heads"]
    queries = d * q_rank + q_rank + q_rank * heads * (s["nope_dim"] + s["rope_dim"])
    keys = d * (kv_rank + s["rope_dim"]) + kv_rank + kv_rank * heads * (s["nope_dim"] + s["v_dim"])
    attention = queries + keys + heads * s["v_dim"] * d + 2 * d  # and two norms
    dense = 3 * d * s["d_ff"]
    mixture = 3 * d * s["d_expert"] * (s["experts"] + s["shared_experts"]) + s["experts"] * (
        d + 1
    )  # and router
    sparse_layers = m.layers - s["dense_layers"]
    return 0, m.layers * attention + s["dense_layers"] * dense + sparse_layers * mixture + d


FAMILIES = {"gpt2": _gpt2, "bert": _bert, "t5": _t5, "gated": _gated, "deepseek": _deepseek}
