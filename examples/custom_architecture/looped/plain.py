"""The model as a plain torch module, the way it may have been trained. Nothing here knows of Noria."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


def rotated(heads: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding of [batch, heads, tokens, dim]; dimension i turns with i + dim / 2."""
    num_tokens, dim = heads.shape[-2:]
    angles = torch.arange(num_tokens)[:, None] * theta ** -(torch.arange(0, dim, 2) / dim)
    low, high = heads.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


class Block(nn.Module):
    """x + attention(norm(x)) + mlp(norm(x)): both read one norm, and neither waits for the other."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.num_heads, self.num_kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.theta = config["rope_theta"]
        kv = hidden // self.num_heads * self.num_kv_heads
        self.norm = nn.RMSNorm(hidden, config["rms_norm_eps"])
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = nn.Linear(hidden, kv, bias=False), nn.Linear(hidden, kv, bias=False)
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        mlp = self.down(silu(self.gate(normed)) * self.up(normed))
        return x + self.o(self.attended(normed)) + mlp

    def attended(self, normed: torch.Tensor) -> torch.Tensor:
        q = rotated(self.split(self.q(normed), self.num_heads), self.theta)
        k = rotated(self.split(self.k(normed), self.num_kv_heads), self.theta)
        v = self.split(self.v(normed), self.num_kv_heads)
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).flatten(2)

    def split(self, rows: torch.Tensor, num_heads: int) -> torch.Tensor:
        return rows.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class PlainLooped(nn.Module):
    """The blocks, gone through num_loops times with the same weights."""

    def __init__(self, config: dict) -> None:
        super().__init__()
        self.num_loops = config["num_loops"]
        self.embed = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.blocks = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = nn.RMSNorm(config["hidden_size"], config["rms_norm_eps"])

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(token_ids)
        for _ in range(self.num_loops):
            for block in self.blocks:
                x = block(x)
        return self.norm(x) @ self.embed.weight.T


def load(path: str) -> PlainLooped:
    """The module with the weights of a checkpoint's folder."""
    module = PlainLooped(json.loads((Path(path) / "config.json").read_text()))
    module.load_state_dict(load_file(Path(path) / "model.safetensors"))
    return module
