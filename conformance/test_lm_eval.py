"""lm-eval against a server: the scores it reports are those that transformers computes in float32.

The harness has an interpreter of its own (`make conformance` makes it): LM_EVAL names its program.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from support_models import write_checkpoint
from support_serving import Serving, serving

pytestmark = pytest.mark.timeout(1000)  # the harness takes its time to start

# context, what is scored behind it
PAIRS = (
    ("The water wheel", " turns"),
    ("The water wheel turns, and its buckets", " fill and empty while it turns."),
    ("A request that is finished", " leaves the batch, and a waiting one takes its place."),
    ("Count from one to ten:", " 1, 2, 3, 4, 5, 6, 7, 8, 9, 10."),
    ("Grüße aus Köln,", " där vattnet rinner"),
    ("水が", "流れる"),
    ("A smile:", " 🙂 and so on"),
    *((f"Bucket number {number} is", f" {'full' if number % 2 else 'empty'}.") for number in range(13)),
)
STOPS = ["\n\n", "Question:", "</s>", "a", "<|im_end|>", "Q:"]  # more than OpenAI's four
MAX_TOKENS = 12
TOLERANCE = 1e-4  # nats, of a whole continuation; the longest has 200

SCORED = """
task: noria_scored
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{continuation}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""
WRITTEN = """
task: noria_written
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{continuation}}}}"
generation_kwargs: {{until: {stops}, max_gen_toks: {max_tokens}, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A small Llama with random weights on disk, and transformers' model of it in float32."""
    directory = tmp_path_factory.mktemp("model")
    return directory, write_checkpoint(directory, "llama")


@pytest.fixture(scope="module")
def served(checkpoint: tuple[Path, Any]) -> Iterator[Serving]:
    with serving(
        model=checkpoint[0],
        dtype="float32",
        kv_cache_dtype="float32",
        num_gpu_blocks_override=256,
        enable_tokenizer_info_endpoint=True,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def pairs(served: Serving, checkpoint: tuple[Path, Any]) -> list[tuple[str, str]]:
    """PAIRS, and the same contexts with the token that the model finds likeliest, where it is readable."""
    likeliest = [(context, next_text(served, checkpoint[1], context)) for context, _ in PAIRS]
    readable = [(context, text) for context, text in likeliest if text.strip().isascii() and text.strip()]
    assert readable
    return [*PAIRS, *readable]


def next_text(served: Serving, model: Any, context: str) -> str:
    ids = served.tokenizer.encode(context, add_special_tokens=False)
    with torch.no_grad():
        token_id = int(model(torch.tensor([ids])).logits[0, -1].argmax())
    text = served.tokenizer.decode([token_id])
    is_itself = served.tokenizer.encode(context + text, add_special_tokens=False) == [*ids, token_id]
    return text if is_itself else ""


@pytest.fixture(scope="module")
def samples(
    served: Serving, pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    """What the harness saw of each document, by task, in the documents' order."""
    work = tmp_path_factory.mktemp("harness")
    data = work / "pairs.jsonl"
    lines = [json.dumps({"context": context, "continuation": text}) for context, text in pairs]
    data.write_text("\n".join(lines), encoding="utf-8")
    fields = {"data": data, "stops": json.dumps(STOPS), "max_tokens": MAX_TOKENS}
    (work / "scored.yaml").write_text(SCORED.format(**fields), encoding="utf-8")
    (work / "written.yaml").write_text(WRITTEN.format(**fields), encoding="utf-8")
    model = f"model=test,base_url={served.url}/v1/completions,num_concurrent=4,tokenizer_backend=remote"
    subprocess.run(
        [
            os.environ["LM_EVAL"],
            *("--model", "local-completions", "--model_args", f"{model},max_retries=1,max_length=512"),
            *("--tasks", "noria_scored,noria_written", "--include_path", work),
            *("--output_path", work / "out", "--log_samples"),
        ],
        check=True,
        timeout=900,
        env={**os.environ, "HF_HOME": str(work / "cache"), "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"},
    )
    return {
        name: sorted(read_samples(work / "out", name), key=lambda sample: sample["doc_id"])
        for name in ("noria_scored", "noria_written")
    }


def read_samples(folder: Path, task: str) -> list[dict[str, Any]]:
    [path] = folder.rglob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]


def score(served: Serving, model: Any, context: str, continuation: str) -> tuple[float, bool]:
    """The log-probability of the continuation, and whether each of its tokens is the likeliest."""
    ids = served.tokenizer.encode(context + continuation, add_special_tokens=False)
    num_context = len(served.tokenizer.encode(context, add_special_tokens=False))
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
    total, is_greedy = 0.0, True
    for position in range(num_context, len(ids)):
        row = logprobs[position - 1]
        total += float(row[ids[position]])
        is_greedy = is_greedy and int(row.argmax()) == ids[position]
    return total, is_greedy


def test_every_score_is_that_of_a_direct_calculation(
    served: Serving,
    checkpoint: tuple[Path, Any],
    pairs: list[tuple[str, str]],
    samples: dict[str, list[dict[str, Any]]],
) -> None:
    for sample, (context, continuation) in zip(samples["noria_scored"], pairs, strict=True):
        expected, is_greedy = score(served, checkpoint[1], context, continuation)
        [[[value, greedy]]] = sample["resps"]
        assert float(value) == pytest.approx(expected, abs=TOLERANCE), context
        assert str(greedy) == str(is_greedy)
    assert {str(sample["resps"][0][0][1]) for sample in samples["noria_scored"]} == {"True", "False"}


def test_every_written_text_is_what_a_client_gets_alone(
    served: Serving, pairs: list[tuple[str, str]], samples: dict[str, list[dict[str, Any]]]
) -> None:
    for sample, (context, _) in zip(samples["noria_written"], pairs, strict=True):
        alone = httpx.post(
            f"{served.url}/v1/completions",
            json={"prompt": context, "temperature": 0, "max_tokens": MAX_TOKENS, "stop": STOPS},
            timeout=60,
        ).json()
        assert sample["resps"] == [[alone["choices"][0]["text"]]]
