"""A course on the output head of language models. Every public name is imported when it is first used.

``lmhead_course.softmax`` is the module; the function is ``lmhead_course.softmax.softmax``.
"""

from importlib import import_module

_HOME = {
    "BeforeAfter": "sampling",
    "CausalLM": "protocol",
    "ChiSquare": "statistics",
    "Distribution": "sampling",
    "DrawsExplorer": "explorers",
    "LMHead": "projection",
    "LanguageModel": "models",
    "ORDERS": "sampling",
    "PipelineExplorer": "explorers",
    "ProjectionExplorer": "explorers",
    "RankedLogits": "sampling",
    "Row": "sampling",
    "STRATEGIES": "studies",
    "SamplingExplorer": "explorers",
    "SamplingParams": "sampling",
    "SoftmaxExplorer": "explorers",
    "Step": "generation",
    "allow_tokens": "masks",
    "apply_temperature": "processors",
    "ban_tokens": "masks",
    "beam_search": "beams",
    "chi_square": "statistics",
    "choose_among": "masks",
    "choose_answer": "scoring",
    "distinct": "studies",
    "draw_path": "pathway",
    "entropy": "softmax",
    "filter_min_p": "processors",
    "filter_top_k": "processors",
    "filter_top_p": "processors",
    "generate": "generation",
    "gumbel_max": "softmax",
    "last_position": "projection",
    "length_and_angle": "projection",
    "load_model": "models",
    "log_softmax": "softmax",
    "logit_bias": "masks",
    "logsumexp": "softmax",
    "online_normaliser": "softmax",
    "penalize_frequency": "processors",
    "penalize_presence": "processors",
    "penalize_repetition": "processors",
    "perplexity": "softmax",
    "process_logits": "sampling",
    "repetition": "studies",
    "sample": "sampling",
    "score_continuations": "scoring",
    "softmax_naive": "softmax",
    "softmax_online": "softmax",
    "spacing": "softmax",
    "speculate": "speculative",
    "strategies": "studies",
    "unembed": "projection",
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
