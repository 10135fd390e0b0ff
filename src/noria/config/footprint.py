"""What a model takes in memory, before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that serving a model takes, as one backend stores it in one dtype. All sizes in bytes.

    Made from a checkpoint's headers alone, so that a model which cannot fit is refused before it is read.

    dtype, quantization: as asked for, of weights; kv_dtype: of keys and values. The sizes below hold for these.
    weights_bytes: the weights as the backend keeps them.
    kv_bytes_per_token: keys and values of one token over all layers.
    max_position: the longest sequence, in tokens, that the model and its backend can serve.
    keeps_kv: whether keys and values are of use after the step that computes them.

    The workspace is what else the engine needs at its peak, be it in a step or while weights are being read:

        workspace_bytes                                          whatever the settings
        + workspace_bytes_per_step_token * max_num_batched_tokens  activations
        + workspace_bytes_per_seq * max_num_seqs                   rows of logits and the sampler's copies
        + workspace_bytes_per_context_token * max_model_len        what attention gathers for one sequence
    """

    dtype: str
    kv_dtype: str
    weights_bytes: int
    kv_bytes_per_token: int
    max_position: int
    workspace_bytes: int = 0
    workspace_bytes_per_step_token: int = 0
    workspace_bytes_per_seq: int = 0
    workspace_bytes_per_context_token: int = 0
    quantization: str = "none"
    keeps_kv: bool = True
