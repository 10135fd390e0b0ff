"""Every output is an item of the catalogue: at each step only tokens that lead on to one may come."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from noria.rules.api import ModelFacts

Trie = dict[int, Any]  # token id -> what may follow; empty at the end of an item


def trie_of(items: Collection[Sequence[int]]) -> Trie:
    root: Trie = {}
    for item in items:
        node = root
        for token_id in item:
            node = node.setdefault(token_id, {})
    return root


# Read once, when the package is imported: the processes of all requests share it. The catalogue is the operator's to
# choose, by the environment; a request may only leave items out.
CATALOG: dict[str, list[int]] = json.loads(Path(os.environ["CATALOG_FILE"]).read_text())
TRIE = trie_of(CATALOG.values())


class InCatalog:
    """Arguments: {"leave_out": [names of items]}, such as those that a user has seen."""

    def __init__(self, arguments: Mapping[str, Any], model: ModelFacts) -> None:
        left_out = set(arguments.get("leave_out", ()))
        unknown = left_out - set(CATALOG)
        if unknown:
            raise ValueError(f"not in the catalogue: {', '.join(sorted(unknown))}")
        kept = [ids for name, ids in CATALOG.items() if name not in left_out]
        self.trie = trie_of(kept) if left_out else TRIE
        self.end_ids = model.eos_token_ids

    def allowed(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> Collection[int]:
        node = self.trie
        for token_id in output_ids:
            node = node[token_id]
        return list(node) or self.end_ids
