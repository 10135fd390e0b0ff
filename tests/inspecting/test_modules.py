"""A Noria model held against the torch module that its checkpoint came from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from noria.config.errors import ConfigError
from noria.inspecting.comparing import first_beyond
from noria.inspecting.running import Comparison, Form, against_module
from noria.loaders.resolve import open_checkpoint
from support_models import cached_checkpoint

FORM = Form("torch", "float32", "float32", "none", 8)
TOKENS = [5, 6, 7, 8, 9, 10]
TRANSFORMERS = "transformers:AutoModelForCausalLM.from_pretrained"


def compared(directory: Path, target: str = TRANSFORMERS) -> Comparison:
    return against_module(open_checkpoint(str(directory)), FORM, TOKENS, target)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_right_model_agrees_with_its_module_at_every_place(architecture: str) -> None:
    found = compared(cached_checkpoint(architecture)).found
    assert first_beyond(found, 1e-4) is None, found
    places = [one.label for one in found]
    assert places == [
        "embed (embedding)",
        "layers.0 attend",
        "layers.0 linear_add (o)",
        "layers.0 norm_glu (gate, up)",
        "layers.0 linear_add (down)",
        "layers.1 attend",
        "layers.1 linear_add (o)",
        "layers.1 norm_glu (gate, up)",
        "layers.1 linear_add (down)",
        "lm_head (head)",
    ]


@pytest.mark.parametrize(
    ("one", "other", "label"),
    [
        ("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj", "layers.0 attend"),
        ("layers.1.mlp.gate_proj", "layers.1.mlp.up_proj", "layers.1 norm_glu (gate, up)"),
        ("layers.1.self_attn.q_proj", "layers.1.self_attn.k_proj", "layers.1 attend"),
    ],
)
def test_swapped_weights_are_found_where_they_are_first_used(
    tmp_path: Path, one: str, other: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    shutil.copytree(cached_checkpoint("llama", num_key_value_heads=6), right)
    shutil.copytree(right, wrong)
    tensors = load_file(wrong / "model.safetensors")
    names = f"model.{one}.weight", f"model.{other}.weight"
    tensors[names[0]], tensors[names[1]] = tensors[names[1]].copy(), tensors[names[0]].copy()
    save_file(tensors, wrong / "model.safetensors", {"format": "pt"})
    (tmp_path / "of_right.py").write_text(
        "import transformers\n"
        f"def load(path): return transformers.AutoModelForCausalLM.from_pretrained({str(right)!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "of_right", raising=False)
    first = first_beyond(compared(wrong, "of_right:load").found, 0.05)
    assert first is not None and first.label == label


def test_a_module_that_cannot_be_had_is_refused_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match="--against no_such_module:load gave no module: ModuleNotFoundError"
    ):
        compared(cached_checkpoint("llama"), "no_such_module:load")
