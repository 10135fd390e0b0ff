"""The model as a torch module, to train it with: layers of attention alone, and one MLP at the end."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


def rotated(heads: torch.Tensor, theta: float = 10000.0) -> torch.Tensor:
    """Rotary embedding of [batch, heads, tokens, dim]; dimension i turns with i + dim / 2."""
    num_tokens, dim = heads.shape[-2:]
    angles = torch.arange(num_tokens)[:, None] * theta ** -(torch.arange(0, dim, 2) / dim)
    low, high = heads.chunk(2, -1)
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], -1)


class Layer(nn.Module):
    def __init__(self, hidden: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        q, k, v = (
            part(normed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        out = scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return x + self.o(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


class PlainCatalog(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        hidden, num_heads = config["hidden_size"], config["num_attention_heads"]
        self.embed = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(Layer(hidden, num_heads) for _ in range(config["num_hidden_layers"]))
        self.mlp = Mlp(hidden, config["intermediate_size"])
        self.norm = nn.RMSNorm(hidden, 1e-5)
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(token_ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(self.mlp(x)))
