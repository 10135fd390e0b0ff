"""One side of benchmarks/pooling.py: NAME MODEL CROSS_ENCODER THREADS; tasks on standard input, seconds on the other.

It imports nothing of Noria's for the other side, which may run in an environment without it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Work = Callable[[list[str]], Any]


def noria(model: str, cross: str, num_threads: int) -> dict[str, Work]:
    from noria import LLM

    settings = {"num_threads": num_threads, "show_progress": False, "max_num_seqs": 256}
    encoder, pairs = LLM(model, **settings), LLM(cross, **settings)
    most = encoder.resolved.config.scheduler.max_model_len
    options: dict[str, Any] = {"truncate_prompt_tokens": most, "show_progress": False}
    return {
        "embed": lambda texts: encoder.embed(texts, **options),
        "rerank": lambda texts: encoder.score(texts[0], texts[1:], **options),
        "cross": lambda texts: pairs.score(texts[0], texts[1:], **options),
    }


def sentence_transformers(model: str, cross: str, num_threads: int) -> dict[str, Work]:
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer

    torch.set_num_threads(num_threads)
    encoder, pairs = SentenceTransformer(model, device="cpu"), CrossEncoder(cross, device="cpu")

    def rerank(texts: list[str]) -> Any:
        vectors = encoder.encode(texts, normalize_embeddings=True)
        return vectors[1:] @ vectors[0]

    return {
        "embed": lambda texts: encoder.encode(texts, normalize_embeddings=True),
        "rerank": rerank,
        "cross": lambda texts: pairs.predict([(texts[0], text) for text in texts[1:]]),
    }


def main() -> None:
    name, model, cross, num_threads = sys.argv[1:]
    make = {"noria": noria, "sentence-transformers": sentence_transformers}[name]
    work = make(model, cross, int(num_threads))
    for line in sys.stdin:
        task = json.loads(line)
        start_s = time.perf_counter()
        work[task["point"]](task["texts"])
        print(time.perf_counter() - start_s, flush=True)


if __name__ == "__main__":
    main()
