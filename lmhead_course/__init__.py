"""A course on the output head of language models. Every public name is imported when it is first used.

``lmhead_course.softmax`` is the module; the function is ``lmhead_course.softmax.softmax``.
"""

from importlib import import_module

_HOME = {
    "BeforeAfter": "sampling",
    "Calibration": "calibration",
    "CausalLM": "protocol",
    "ChiSquare": "statistics",
    "CostExplorer": "explorers",
    "Distribution": "sampling",
    "DrawsExplorer": "explorers",
    "GenerationExplorer": "explorers",
    "HeadShape": "cost",
    "LMHead": "projection",
    "LanguageModel": "models",
    "LensExplorer": "explorers",
    "LensReading": "lens",
    "LossExplorer": "explorers",
    "ORDERS": "sampling",
    "PipelineExplorer": "explorers",
    "Predictions": "calibration",
    "ProjectionExplorer": "explorers",
    "RankedLogits": "sampling",
    "Row": "sampling",
    "STRATEGIES": "studies",
    "SamplingExplorer": "explorers",
    "SamplingParams": "sampling",
    "SoftmaxExplorer": "explorers",
    "Step": "generation",
    "TextLoss": "evaluation",
    "TextReading": "lens",
    "TinyLM": "tiny",
    "TokenText": "highlight",
    "Training": "twins",
    "TyingExplorer": "explorers",
    "allow_tokens": "masks",
    "apply_temperature": "processors",
    "at_least_once": "lens",
    "ban_tokens": "masks",
    "beam_search": "beams",
    "calibrate": "calibration",
    "chi_square": "statistics",
    "choose_among": "masks",
    "choose_answer": "scoring",
    "cross_entropy": "loss",
    "distinct": "studies",
    "draw_path": "pathway",
    "entropy": "softmax",
    "export_progress": "overview",
    "filter_min_p": "processors",
    "filter_top_k": "processors",
    "filter_top_p": "processors",
    "generate": "generation",
    "gumbel_max": "softmax",
    "import_progress": "overview",
    "is_tied": "tying",
    "last_position": "projection",
    "learn_tokens": "tiny",
    "length_and_angle": "projection",
    "linear_cross_entropy": "loss",
    "load_model": "models",
    "log_softmax": "softmax",
    "logit_bias": "masks",
    "logit_lens": "lens",
    "logsumexp": "softmax",
    "neighbours": "tying",
    "online_normaliser": "softmax",
    "path_gradients": "tying",
    "penalize_frequency": "processors",
    "penalize_presence": "processors",
    "penalize_repetition": "processors",
    "perplexity": "softmax",
    "predictions": "calibration",
    "process_logits": "sampling",
    "rank_of": "lens",
    "read_along": "lens",
    "repetition": "studies",
    "restore_notebook": "restore",
    "sample": "sampling",
    "score_continuations": "scoring",
    "show_progress": "overview",
    "show_storage": "storage",
    "softmax_naive": "softmax",
    "softmax_online": "softmax",
    "spacing": "softmax",
    "speculate": "speculative",
    "strategies": "studies",
    "text_loss": "evaluation",
    "tie": "tying",
    "token_losses": "evaluation",
    "unembed": "projection",
    "unique_parameters": "tying",
    "vocab_parallel": "parallel",
}

__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return __all__
