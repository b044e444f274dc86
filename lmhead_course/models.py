"""Language models behind one small interface: a body, a head, a tokenizer.

``load_model()`` gives the course's own model, run by ``llama.py``; any other name goes through transformers.
"""

import contextlib
import copy
import inspect
import json
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .fetch import fetch
from .llama import LlamaBody, LlamaConfig, positions_of
from .memory import memory_left, require_memory
from .projection import LMHead
from .tokens import FileTokenizer, PretrainedTokenizer, show_token

DEFAULT = "smollm2-135m"
ALL_LOGITS_LIMIT = 1 << 30  # bytes
LOADING = (
    100_000_000  # bytes that loading the default model takes beside its weights, which stay in their file
)
NORM_NAMES = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f", "final_norm")


class LanguageModel:
    """A causal language model, taken apart at the place this course is about.

    ``head(final_norm(hidden_states(text)[-1]))`` are the logits at every position: the body ends where the residual
    stream does, then come the final norm and the head. Weights and logits are float32, on ``device``.

    Results take no gradient, but they are ordinary tensors: change them in place, or ask them for a gradient.

    Attributes: ``name``; ``head``, an ``LMHead`` with weight (d_vocab, d_model); ``d_model``, ``d_vocab``,
    ``n_layers``; ``context_length``, the most tokens it reads; ``eos_ids``, the set of ids that end a text;
    ``bos_id``, the id that begins one, or None.
    """

    def __init__(
        self,
        body: nn.Module,
        head: LMHead,
        tokenizer: FileTokenizer | PretrainedTokenizer,
        *,
        name: str,
        context_length: int,
        eos_ids: Iterable[int],
    ):
        self.body = body
        self.head = head
        self.tokenizer = tokenizer
        self.name = name
        self.context_length = context_length
        self.eos_ids = set(eos_ids)
        self.bos_id = tokenizer.bos_id
        self.d_vocab, self.d_model = head.weight.shape
        self.n_layers = body.n_layers

    def __repr__(self) -> str:
        sizes = f"d_model={self.d_model}, d_vocab={self.d_vocab}, n_layers={self.n_layers}"
        return f"LanguageModel({self.name!r}, {sizes}, device={str(self.device)!r})"

    @property
    def device(self) -> torch.device:
        """Where the weights are and the logits appear."""
        return self.head.weight.device

    @property
    def embedding(self) -> Float[Tensor, "d_vocab d_model"]:
        """The token embedding; in a tied model it is ``head.weight``, at the same address."""
        return self.body.embedding

    def final_norm(self, hidden: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Return the normed residual stream, which the head reads."""
        return self.body.norm(hidden)

    # no_grad and not inference_mode in all that follows: an inference tensor could neither be changed in place nor
    # differentiated by the learner who gets it. Grad mode belongs to the thread, and a widget's
    # callback may run on any, so each method enters it by itself.

    @torch.no_grad()
    def logits(self, text: str) -> Float[Tensor, " d_vocab"]:
        """Return the logits of the token that follows a text; the head is computed at the last position only."""
        streams, _ = self.body(self.prompt_ids(text))
        return self._read(streams[-1][0, -1])

    @torch.no_grad()
    def all_logits(
        self, text: str, positions: Sequence[int] | slice | None = None
    ) -> Float[Tensor, "position d_vocab"]:
        """Return the logits after each token of a text, or at some positions; negative ones count from the end.

        Raises ``ValueError`` for a position outside the text, or if the result would be larger than 1 GiB;
        ``MemoryError`` if so much is not left.
        """
        ids = self.prompt_ids(text)
        chosen = _chosen_positions(positions, ids.shape[1])
        size, most = len(chosen) * self.d_vocab * 4, ALL_LOGITS_LIMIT // (self.d_vocab * 4)
        if size > ALL_LOGITS_LIMIT:
            raise ValueError(
                f"positions: logits at {len(chosen)} positions × {self.d_vocab} tokens take {size / 2**30:.2f} GiB, "
                f"1 GiB is allowed: ask for at most {most} positions"
            )
        self._require_memory(size, f"all_logits at {len(chosen):,} positions")
        streams, _ = self.body(ids)
        return self._read(streams[-1][0, chosen])

    @torch.no_grad()
    def hidden_states(self, text: str) -> Float[Tensor, "layers position d_model"]:
        """Return the residual stream (layer + 1, position, d_model), *before* the final norm in every row.

        Row 0 is the embedding, row i the stream after layer i. (transformers norms its last row already.)
        """
        ids = self.prompt_ids(text)
        size = 2 * (self.n_layers + 1) * ids.numel() * self.d_model * 4  # the streams one by one, then joined
        self._require_memory(size, f"hidden_states of {ids.numel():,} tokens")
        streams, _ = self.body(ids, all_layers=True)
        return torch.cat(streams)

    @torch.no_grad()
    def step(
        self,
        ids: Int[Tensor, "batch n"],
        cache: Any = None,
        mask: Tensor | None = None,
        last_only: bool = True,
    ) -> tuple[Tensor, Any]:
        """Read n more tokens a row, after those in ``cache``, and return the logits and the grown cache.

        The logits are (batch, d_vocab), those after the last token; with ``last_only=False`` (batch, n, d_vocab).
        ``mask`` (batch, past + n) is 1 at real tokens and 0 at padding; it covers the cached positions too, and
        padding stands on the left, so that the last column is a real token in every row.

        The cache given is left as it was; ``cache.rows(index)`` picks or repeats rows of the batch, ``cache.crop(n)``
        keeps the first n positions, ``cache.length`` counts them. Raises ``ValueError`` beyond ``context_length``,
        for ids of another shape or kind or outside the vocabulary, or for a mask of another shape.
        """
        _require_rows_of_ids(ids)
        ids, mask = ids.to(self.device), None if mask is None else mask.to(self.device)
        past = 0 if cache is None else cache.length
        self._check_length(past + ids.shape[1])
        self._check_step(ids, past, mask)
        if not last_only:
            self._require_memory(ids.numel() * self.d_vocab * 4, f"logits at {ids.numel():,} positions")
        streams, cache = self.body(ids, cache, mask)
        return self._read(streams[-1][:, -1] if last_only else streams[-1]), cache

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Return the token ids of a text, none for an empty one.

        ``<|im_end|>`` typed in a text is plain characters; with ``special=True`` it is the control token. A model
        whose tokenizer always begins with a BOS token (Llama, Gemma) gets it.
        """
        return self.tokenizer.encode(text, special)

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """Return the text of token ids; control tokens are spelled out, broken characters become U+FFFD."""
        return self.tokenizer.decode(ids.tolist() if isinstance(ids, Tensor) else list(ids))

    def tokens(self, text: str) -> list[str]:
        """Return the label of each token of a text."""
        return [self.label(token_id) for token_id in self.encode(text)]

    def label(self, token_id: int) -> str:
        """Return a printable name of a token, for plots and tables: " Paris" is ``␣Paris``.

        A line break is ⏎, a byte that is no whole character ``<0xE4>``, a character that draws nothing ``<U+200B>``.
        Markup is left as it is: draw the label as text.
        """
        if not 0 <= token_id < self.d_vocab:
            raise ValueError(f"token_id must be in 0 … {self.d_vocab - 1}, got {token_id}")
        return show_token(self.tokenizer.token(int(token_id)), self.tokenizer.byte_level)

    def chat(self, messages: list[dict[str, str]]) -> str:
        """Return a conversation in the model's chat format, up to where its answer begins.

        ``messages`` are dicts with "role" and "content". Encode the result with ``special=True``: control tokens
        typed in a content then count as well, so clean what strangers typed. Raises ``ValueError`` without a format.
        """
        for message in messages:
            if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
                raise ValueError(f"messages must be dicts with 'role' and 'content', got {message!r}")
        return self.tokenizer.chat(messages)

    def prompt_ids(self, text: str) -> Int[Tensor, "1 position"]:
        """Return the ids (1, position) the model reads for a text: its BOS token alone for an empty one.

        Raises ``ValueError`` for a text beyond ``context_length``, and for no text where the model has no BOS token.
        """
        ids = self.encode(text)
        if not ids and self.bos_id is None:
            raise ValueError(
                f"text is empty, and {self.name} has no BOS token to start from: give it some text"
            )
        ids = ids or [self.bos_id]
        self._check_length(len(ids))
        return torch.tensor([ids], device=self.device)

    def _read(self, hidden: Tensor) -> Tensor:
        return self.head(self.final_norm(hidden))

    def _require_memory(self, size: int, what: str) -> None:
        if self.device.type != "cuda":  # a CUDA device has memory of its own, and says so when it is full
            require_memory(size, what)

    def _check_length(self, length: int) -> None:
        if length > self.context_length:
            raise ValueError(f"text is {length} tokens long, {self.name} reads at most {self.context_length}")

    def _check_step(self, ids: Tensor, past: int, mask: Tensor | None) -> None:
        batch, n = ids.shape
        if n == 0:
            raise ValueError("ids must hold at least one token a row, got none")
        if ids.min() < 0 or ids.max() >= self.d_vocab:
            found = f"{ids.min().item()} … {ids.max().item()}"
            raise ValueError(f"ids must be in 0 … {self.d_vocab - 1}, got {found}")
        if mask is not None and mask.shape != (batch, past + n):
            raise ValueError(
                f"mask must have shape (batch, past + n) = {(batch, past + n)}, got {tuple(mask.shape)}"
            )


def _require_rows_of_ids(ids: Any) -> None:
    if isinstance(ids, Tensor) and ids.dim() == 2 and ids.dtype in (torch.int64, torch.int32):
        return
    found = f"{ids.dtype} of shape {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"{ids!r:.60}"
    raise ValueError(
        f"ids must be a tensor of whole numbers of shape (batch, n), as torch.tensor([[464, 3139]]) is; got {found}"
    )


def load_model(name: str | os.PathLike = DEFAULT, device: str | torch.device = "auto") -> LanguageModel:
    """Load a language model, in float32.

    ``name`` is "smollm2-135m" (fetched once, with a progress bar, then mapped from the cache), the id of a Hugging Face
    repository, or a local folder. Code that comes with a model is never run, and only safetensors weights are read.
    ``device`` is "auto" (cuda, else mps, else cpu) or what ``torch.device`` accepts.

    Raises ``RuntimeError`` if the model cannot be fetched, ``MemoryError`` if there is no room for it, ``ValueError``
    for a device that is not there, a model that cannot be loaded, or one whose head is no matrix with an optional bias,
    scale and soft cap.
    """
    chosen = pick_device(device)
    if name == DEFAULT:
        return load_default(fetch(), chosen)
    return load_pretrained(os.path.expanduser(name), chosen)


def pick_device(device: str | torch.device) -> torch.device:
    """Return the device of that name; raise ``ValueError`` if there is no such device here."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device == "auto":
        return torch.device(next(kind for kind, there in present.items() if there))
    allowed = ["auto", *(kind for kind, there in present.items() if there)]
    try:
        chosen = torch.device(device)
        there = present.get(chosen.type, False)
    except (RuntimeError, TypeError):
        there = False
    if there and chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        there = False
    if not there:
        raise ValueError(f"device must be one of {allowed} on this machine, got {str(device)!r}")
    return chosen


def load_default(folder: Path, device: torch.device) -> LanguageModel:
    """Load a folder as ``fetch`` makes it; raise ``RuntimeError`` if its files cannot be read.

    On a CPU the weights stay a map of their file, which all processes that load the model share.
    """
    from safetensors.torch import load_file

    require_memory(LOADING, "loading the model")
    _warn_if_weights_do_not_fit(folder / "model.safetensors")

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with torch.device("meta"):  # sizes only; the weights come from the file, without a copy
            body = LlamaBody(_llama_config(config))
        weights = load_file(folder / "model.safetensors")
        named = {key.removeprefix("model."): tensor for key, tensor in weights.items()}
        body.load_state_dict(named, assign=True)
        tokenizer = FileTokenizer(folder)
    except Exception as error:  # each of the three readers has exceptions of its own
        raise RuntimeError(f"{folder} cannot be read: {error}. Delete that folder and try again") from error
    body.requires_grad_(False).to(device)
    return LanguageModel(
        body,
        LMHead(body.embedding),  # tied: one matrix, one address
        tokenizer,
        name=DEFAULT,
        context_length=config["max_position_embeddings"],
        eos_ids=config["eos_token_id"],
    )


def _warn_if_weights_do_not_fit(file: Path) -> None:
    """Warn where the file is larger than what memory has left: parts of it are then read again and again."""
    left, size = memory_left(), file.stat().st_size if file.exists() else 0
    if left is not None and left < size:
        warnings.warn(
            f"{left / 1e6:,.0f} MB of memory are left and the model's weights are {size / 1e6:,.0f} MB: it will run, "
            "but slowly. Shut down the kernels of other notebooks (in JupyterLab: Kernel → Shut Down All Kernels)",
            stacklevel=3,
        )


def _llama_config(config: dict) -> LlamaConfig:
    return LlamaConfig(
        d_model=config["hidden_size"],
        d_vocab=config["vocab_size"],
        d_mlp=config["intermediate_size"],
        n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"],
        n_kv_heads=config["num_key_value_heads"],
        d_head=config["head_dim"],
        rope_base=config["rope_parameters"]["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )


def _chosen_positions(positions: Sequence[int] | slice | None, length: int) -> list[int]:
    if positions is None or isinstance(positions, slice):
        return list(range(length)[positions or slice(None)])
    wrong = [position for position in positions if not -length <= position < length]
    if wrong:
        raise ValueError(f"positions must be in {-length} … {length - 1}, got {wrong[0]}")
    return [int(position) % length for position in positions]


class PretrainedCache:
    """A cache of transformers that, like ``KVCache``, is left as it was by a step."""

    def __init__(self, inner: Any):
        self.inner = inner

    @property
    def length(self) -> int:
        """Number of positions seen."""
        return int(self.inner.get_seq_length())

    def copy(self) -> "PretrainedCache":
        """Return a cache that can grow without changing this one."""
        from transformers.cache_utils import DynamicLayer

        inner = copy.copy(self.inner)
        # A dynamic layer replaces its tensors when it grows; any other kind may write into them.
        layers = self.inner.layers
        inner.layers = [
            copy.copy(one) if isinstance(one, DynamicLayer) else copy.deepcopy(one) for one in layers
        ]
        return PretrainedCache(inner)

    def rows(self, index: Int[Tensor, " new_batch"]) -> "PretrainedCache":
        """Return the cache of the batch rows ``index``, repeats allowed."""
        chosen = self.copy()
        chosen.inner.batch_select_indices(index)
        return chosen

    def crop(self, length: int) -> "PretrainedCache":
        """Return the cache of the first ``length`` positions.

        Raises ``RuntimeError`` where layers with a sliding window have forgotten what would be needed again.
        """
        cropped = self.copy()
        cropped.inner.crop(length - self.length)  # transformers wants minus the number to remove
        return cropped


class PretrainedBody(nn.Module):
    """The body of a transformers model, with the members of ``LlamaBody``.

    Its models norm the last hidden state before they return it, so the stream is caught on its way into that norm.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.base = model.base_model
        self.norm = find_final_norm(model)
        self.n_layers = model.config.get_text_config().num_hidden_layers
        self._accepts = inspect.signature(self.base.forward).parameters
        self._caught = threading.local()  # two callbacks may run the model at once
        self.norm.register_forward_pre_hook(self._catch)

    @property
    def embedding(self) -> Float[Tensor, "d_vocab d_model"]:
        """The token embedding, one row a token."""
        return self.base.get_input_embeddings().weight

    def forward(
        self,
        ids: Int[Tensor, "batch n"],
        cache: PretrainedCache | None = None,
        mask: Tensor | None = None,
        all_layers: bool = False,
    ) -> tuple[list[Float[Tensor, "batch n d_model"]], PretrainedCache]:
        """Return residual streams and the grown cache, as ``LlamaBody.forward`` does."""
        cache = self._new_cache() if cache is None else cache.copy()
        name = "cache" if "cache" in self._accepts else "past_key_values"
        arguments = {
            "input_ids": ids,
            name: cache.inner,
            "use_cache": True,
            "output_hidden_states": all_layers,
        }
        if mask is not None:
            arguments["attention_mask"] = mask.long()
            if "position_ids" in self._accepts:
                past = mask.shape[1] - ids.shape[1]
                arguments["position_ids"] = positions_of(ids.shape[1], past, mask, ids.device)
        self._caught.stream = None
        try:
            result = self.base(**arguments)
        finally:
            last = self._caught.__dict__.pop("stream")
        return ([*result.hidden_states[:-1], last] if all_layers else [last]), cache

    def _new_cache(self) -> PretrainedCache:
        from transformers import DynamicCache

        return PretrainedCache(DynamicCache(config=self.base.config))

    def _catch(self, norm: nn.Module, arguments: tuple) -> None:
        # Only while the model reads: what ``final_norm`` is given by itself would be kept here for nobody.
        if hasattr(self._caught, "stream"):
            self._caught.stream = arguments[0]


def load_pretrained(name: str, device: torch.device) -> LanguageModel:
    """Load a repository or a folder through transformers, and take the model apart; errors as in ``load_model``."""
    model, tokenizer = _read_pretrained(name)
    model.eval().requires_grad_(False).to(device)
    config = model.config.get_text_config()
    try:
        body, head = PretrainedBody(model), build_head(model)
        _require_same_logits(model, body, head)
    except Exception as error:
        # Another library's code met a model that nobody foresaw: any failure means "not this one".
        raise ValueError(
            f"{name!r} is a {type(model).__name__}, which cannot be taken apart here: {error}. A model must "
            f"end in a final norm ({', '.join(NORM_NAMES)}) and a head: a matrix with an optional bias, scale and cap"
        ) from error
    return LanguageModel(
        body,
        head,
        PretrainedTokenizer(tokenizer),
        name=name,
        context_length=_context_length(config, tokenizer),
        eos_ids=_eos_ids(model, tokenizer),
    )


def find_final_norm(model: nn.Module) -> nn.Module:
    """Return the norm between the last layer and the head; raise ``ValueError`` if none stands at a known place."""
    base = model.base_model
    for holder in (base, *(getattr(base, part, None) for part in ("decoder", "language_model"))):
        for name in NORM_NAMES:
            if isinstance(getattr(holder, name, None), nn.Module):
                return getattr(holder, name)
    raise ValueError("its final norm was not found")


def build_head(model: nn.Module) -> LMHead:
    """Return the model's head on the model's own parameters, scaled and capped as its config says."""
    config = model.config.get_text_config()
    linear = model.get_output_embeddings()
    if linear is None:
        raise ValueError("it has no output embedding")
    scale = getattr(config, "logit_scale", None) or 1.0  # Cohere multiplies
    scale /= getattr(config, "logits_scaling", None) or 1.0  # Granite divides
    cap = getattr(config, "final_logit_softcapping", None)  # Gemma 2
    return LMHead(linear.weight, getattr(linear, "bias", None), scale=scale, soft_cap=cap)


@torch.no_grad()
def _require_same_logits(model: nn.Module, body: PretrainedBody, head: LMHead) -> None:
    ids = torch.arange(1, 5, device=head.weight.device)[None]
    expected = model(input_ids=ids, use_cache=False).logits
    streams, _ = body(ids)
    found = head(body.norm(streams[-1]))
    error = (found - expected).abs().max() / expected.abs().max()
    if not error < 1e-3:
        raise ValueError(f"its logits are not those of its head (relative difference {error.item():.2g})")


def _read_pretrained(name: str) -> tuple[nn.Module, Any]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    try:
        if Path(name).is_file() or (Path(name).is_absolute() and not Path(name).is_dir()):
            raise ValueError("there is no such folder")
        with _quiet():
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
            weights = getattr(config, "transformers_weights", None)  # a config may name another weights file
            if weights and ".safetensors" not in weights:
                raise ValueError(f"its weights are {weights!r}")
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(
                name, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ValueError(
            f"{name!r} could not be loaded: {error}\nAllowed are {DEFAULT!r}, and repositories or folders with "
            "safetensors weights of an architecture that transformers knows by itself. Pickled weights (.bin, .pt) "
            "and code that comes with a model could do anything to this machine and are refused"
        ) from error
    return model, tokenizer


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' bar for reading weights, and ask its server for no conversions.

    The hub's bars for downloads are shown or hidden as they were before.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from transformers.utils import logging

    shown, before = logging.is_progress_bar_enabled(), os.environ.get("DISABLE_SAFETENSORS_CONVERSION")
    hub_is_quiet = are_progress_bars_disabled()
    logging.disable_progress_bar()  # the hub's too, as enabling enables both
    if not hub_is_quiet:
        enable_progress_bars()
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
        if hub_is_quiet:
            disable_progress_bars()
        if before is None:
            del os.environ["DISABLE_SAFETENSORS_CONVERSION"]
        else:
            os.environ["DISABLE_SAFETENSORS_CONVERSION"] = before


def _context_length(config: Any, tokenizer: Any) -> int:
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    stated = [getattr(config, name) for name in names if isinstance(getattr(config, name, None), int)]
    return stated[0] if stated else int(min(tokenizer.model_max_length, 2**31 - 1))


def _eos_ids(model: nn.Module, tokenizer: Any) -> set[int]:
    found = [model.config.eos_token_id, tokenizer.eos_token_id]
    found.append(getattr(getattr(model, "generation_config", None), "eos_token_id", None))
    flat = [one for ids in found for one in (ids if isinstance(ids, list) else [ids])]
    return {one for one in flat if one is not None}
