"""A script for vLLM's environment: a GGUF file to a directory of bf16 safetensors with config and tokenizer.

python hf_form.py MODEL.gguf DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(model: Path, directory: Path) -> None:
    source = {"pretrained_model_name_or_path": str(model.parent), "gguf_file": model.name}
    wanted = GgufConfig(dequantize=True)
    weights = AutoModelForCausalLM.from_pretrained(**source, quantization_config=wanted, dtype=torch.bfloat16)
    weights.save_pretrained(directory)
    AutoTokenizer.from_pretrained(**source).save_pretrained(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
