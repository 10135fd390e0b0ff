"""Make a catalogue of items, and train a small model on made-up users who each like one kind of item.

An item's id is three tokens: its genre, its maker, its number. Of the many such triples few are items.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from catalog.plain import PlainCatalog
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

GENRES = ("jazz", "rock", "folk", "opera", "techno", "blues")
TOKENS = ["<end>", *GENRES, *(f"m{i}" for i in range(16)), *(f"n{i}" for i in range(16))]
IDS = {token: place for place, token in enumerate(TOKENS)}
HISTORY = 5  # items
CONFIG = {
    "architectures": ["CatalogForCausalLM"],
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
}


def make_catalog(rng: random.Random) -> dict[str, list[int]]:
    """By name, the tokens of each of 120 items, 20 of a genre."""
    triples = {
        (genre, f"m{rng.randrange(16)}", f"n{rng.randrange(16)}") for genre in GENRES for _ in range(20)
    }
    return {" ".join(item): [IDS[token] for token in item] for item in sorted(triples)}


def train(catalog: dict[str, list[int]], rng: random.Random) -> PlainCatalog:
    torch.set_num_threads(1)  # it is too small for more
    torch.manual_seed(0)
    module = PlainCatalog(CONFIG)
    optimizer = torch.optim.AdamW(module.parameters(), 5e-3)
    by_genre = [[ids for ids in catalog.values() if ids[0] == IDS[genre]] for genre in GENRES]
    for _ in range(120):
        users = [rng.sample(rng.choice(by_genre), HISTORY + 1) for _ in range(32)]
        batch = torch.tensor([[token for item in user for token in item] for user in users])
        logits = module(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss after training: {loss.item():.2f}")
    return module


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    catalog = make_catalog(rng)
    save_file(train(catalog, rng).state_dict(), directory / "model.safetensors")
    (directory / "catalog.json").write_text(json.dumps(catalog))
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=1))
    tokenizer = Tokenizer(models.WordLevel(IDS, unk_token="<end>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


main(Path(sys.argv[1]))
