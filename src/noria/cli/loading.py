"""Loads a model for a terminal command, saying what it does."""

from __future__ import annotations

import sys

from noria.config.asked import EngineOptions
from noria.config.generating import SamplingOptions
from noria.offline.llm import LLM
from noria.sampling.defaults import params_over_defaults
from noria.sampling.params import SamplingParams


def load(options: EngineOptions) -> LLM:
    """An LLM for these options."""
    return LLM.from_options(options, show_progress=sys.stderr.isatty())


def sampling_params(asked: SamplingOptions, llm: LLM, **more: object) -> SamplingParams:
    """What was stated, over what the model's makers recommend. max_tokens None: to the context's end."""
    stated = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "repetition_penalty": asked.repetition_penalty,
        "seed": asked.sampling_seed,
        "stop": asked.stop,
    }
    stated = {name: value for name, value in stated.items() if value is not None}
    return params_over_defaults({**stated, "max_tokens": asked.max_tokens, **more}, llm.generation_defaults)
