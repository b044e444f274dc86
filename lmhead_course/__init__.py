"""A course on the output head of language models. Every public name is imported when it is first used.

``lmhead_course.softmax`` is the module; the function is ``lmhead_course.softmax.softmax``.
"""

from importlib import import_module

_HOME = {
    "BeforeAfter": "sampling",
    "CausalLM": "protocol",
    "Distribution": "sampling",
    "LMHead": "projection",
    "LanguageModel": "models",
    "ORDERS": "sampling",
    "RankedLogits": "sampling",
    "Row": "sampling",
    "SamplingExplorer": "explorers",
    "SamplingParams": "sampling",
    "apply_temperature": "processors",
    "entropy": "softmax",
    "filter_min_p": "processors",
    "filter_top_k": "processors",
    "filter_top_p": "processors",
    "last_position": "projection",
    "load_model": "models",
    "log_softmax": "softmax",
    "logsumexp": "softmax",
    "online_normaliser": "softmax",
    "penalize_frequency": "processors",
    "penalize_presence": "processors",
    "penalize_repetition": "processors",
    "perplexity": "softmax",
    "process_logits": "sampling",
    "sample": "sampling",
    "softmax_naive": "softmax",
    "softmax_online": "softmax",
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
