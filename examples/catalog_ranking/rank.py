"""Rank the catalogue for a user who has had four items of one genre. Takes the model's folder and the genre."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from noria import LLM, Rule, SamplingParams

NUM_SAMPLES = 48
NUM_SHOWN = 5


def main(directory: str, history: list[str]) -> None:
    catalog = json.loads((Path(directory) / "catalog.json").read_text())
    names = {tuple(ids): name for name, ids in catalog.items()}
    params = SamplingParams(
        n=NUM_SAMPLES,
        max_tokens=4,
        logprobs=0,
        seed=0,
        rule=Rule("catalog", {"leave_out": history}),
    )
    prompt = [token_id for item in history for token_id in catalog[item]]
    with LLM(directory) as llm:
        (result,) = llm.generate([{"prompt_token_ids": prompt}], params, show_progress=False)
    scores: dict[str, float] = {}
    for output in result.outputs:
        item = names[tuple(output.token_ids[:3])]  # there is no other: a KeyError would be a fault
        scores[item] = sum(one.logprob for one in output.logprobs[:3])
    assert not set(scores) & set(history)
    print(f"after {', '.join(history)} ({len(scores)} items seen in {NUM_SAMPLES} samples):")
    for item, score in sorted(scores.items(), key=lambda pair: -pair[1])[:NUM_SHOWN]:
        print(f"  {item:<16} {math.exp(score):.3f}")


def first_items(directory: str, genre: str, count: int) -> list[str]:
    catalog = json.loads((Path(directory) / "catalog.json").read_text())
    return [name for name in catalog if name.startswith(genre)][:count]


main(sys.argv[1], first_items(sys.argv[1], sys.argv[2], 4))
