"""The native backend serves where torch is not installed."""

from __future__ import annotations

import subprocess
import sys

from support_models import cached_checkpoint

CODE = """
import sys

sys.modules["torch"] = None  # importing it fails, and it is not found
from noria import LLM, SamplingParams

llm = LLM(sys.argv[1], max_num_seqs=2, max_model_len=64)
outputs = llm.generate(["The water", "Count"], SamplingParams(temperature=0, max_tokens=5, ignore_eos=True))
print([len(output.outputs[0].token_ids) for output in outputs], sys.modules["torch"])
"""


def test_a_model_answers_with_every_import_of_torch_failing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(cached_checkpoint("llama"))],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[5, 5] None"
