"""A model's shapes and constants from a Hugging Face config.json.

A key that a config.json leaves out has the default of its transformers class (5.24), kept here per family.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.errors import ModelError, PluginError
from noria.config.model import ModelConfig
from noria.config.plugins import MODELS_GROUP, Table
from noria.loaders.bert_config import ENCODER_CLASSES, ENCODER_TYPES, encoder_config
from noria.loaders.fields import Fields, shorten
from noria.loaders.hf_ending import ENDINGS, with_ending
from noria.loaders.hf_rope import rope_config
from noria.loaders.model_checks import check_model, head_dim_of, reach_of


@dataclass(frozen=True, slots=True)
class HfFiles:
    """What a checkpoint says of its model. config: config.json. generation: generation_config.json.

    num_tensors: in the whole checkpoint. tokenizer_eos: the tokenizer's end-of-sequence token, where it names one.
    """

    config: Fields
    generation: Fields
    num_tensors: int
    tokenizer_eos: int | None


@dataclass(frozen=True, slots=True)
class Family:
    """A transformers class, or one like it: how its config.json is read, and the defaults of what it leaves out."""

    architecture: str
    vocab_size: int
    intermediate_size: int
    max_position: int
    num_kv_heads: int | None = None  # None: as many as query heads
    head_dim: int | None = None  # None: hidden size / heads
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    has_layer_types: bool = False  # windows layer by layer, switched by use_sliding_window
    sliding_window: int | None = None  # of all layers; None: the family has no windows
    reads_attention_bias: bool = False
    reads_mlp_bias: bool = False


_FAMILIES = {
    "LlamaForCausalLM": Family(
        "llama",
        32000,
        11008,
        2048,
        bos_token_id=1,
        eos_token_id=2,
        reads_attention_bias=True,
        reads_mlp_bias=True,
    ),
    "MistralForCausalLM": Family(
        "mistral",
        32000,
        14336,
        131072,
        num_kv_heads=8,
        bos_token_id=1,
        eos_token_id=2,
        sliding_window=4096,
    ),
    "Qwen2ForCausalLM": Family("qwen2", 151936, 22016, 32768, num_kv_heads=32, has_layer_types=True),
    "Qwen3ForCausalLM": Family(
        "qwen3",
        151936,
        22016,
        32768,
        num_kv_heads=32,
        head_dim=128,
        has_layer_types=True,
        reads_attention_bias=True,
    ),
}
_INSTALLED = Table(MODELS_GROUP, {})
_MODEL_TYPES = {family.architecture: name for name, family in _FAMILIES.items()} | ENCODER_TYPES
_QWEN_WINDOW = 4096
_QWEN_FULL_LAYERS = 28


def model_config(files: HfFiles) -> ModelConfig:
    """Raises ModelError, and PluginError where an installed package that reads the configuration is broken."""
    name = _class_name(files.config)
    family = _FAMILIES.get(_family_name(name))
    if family is not None:
        config = with_ending(decoder_config(files, family), name, files.config)
    elif name in ENCODER_CLASSES:
        _refuse_quantised(files.config)
        config = encoder_config(name, files.config)
    else:
        config = _installed_config(files, name)
    return check_model(config, files.num_tensors, files.config.source)


def decoder_config(files: HfFiles, family: Family) -> ModelConfig:
    """The reading of a decoder's usual keys, with the defaults of its family. Raises ModelError."""
    fields = files.config
    _refuse_quantised(fields)
    hidden_size = fields.integer("hidden_size", 4096)
    num_heads = fields.integer("num_attention_heads", 32)
    head_dim = _head_dim(fields, family, hidden_size, num_heads)
    stated_position = fields.integer("max_position_embeddings", family.max_position)
    rope = rope_config(fields, head_dim, stated_position)
    has_bias = family.reads_attention_bias and fields.flag("attention_bias", False)
    num_layers = fields.integer("num_hidden_layers", 32)
    return ModelConfig(
        architecture=family.architecture,
        vocab_size=fields.integer("vocab_size", family.vocab_size),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", family.intermediate_size),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_num_kv_heads(fields, family, num_heads),
        head_dim=head_dim,
        max_position=reach_of(stated_position, rope),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=rope,
        tie_word_embeddings=fields.flag("tie_word_embeddings", False),
        hidden_act=fields.text("hidden_act", "silu"),
        qkv_bias=has_bias or family.architecture == "qwen2",
        output_bias=has_bias,
        mlp_bias=family.reads_mlp_bias and fields.flag("mlp_bias", False),
        # Hostile numbers of layers end in check_model; no list is made for them.
        windows=_windows(fields, family, num_layers) if num_layers <= files.num_tensors else (),
        eos_token_ids=_eos_token_ids(files, family),
        bos_token_id=_bos_token_id(fields, family),
    )


def _installed_config(files: HfFiles, name: str) -> ModelConfig:
    """By an installed package that adds the architecture `name`, whose class has `read_config(files)`."""
    entry = _INSTALLED.find(name)
    if entry is None:
        raise ModelError(
            f"{files.config.source}: the architecture {shorten(name)} is not supported; "
            f"supported are {', '.join((*_FAMILIES, *ENCODER_CLASSES, *_INSTALLED.names()))}"
        )
    with entry.blamed():
        config = entry.load().read_config(files)
    if not isinstance(config, ModelConfig) or config.architecture != name:
        raise PluginError(
            f"{entry.where}: its read_config must return a ModelConfig whose architecture is {name!r}, "
            f"got {shorten(getattr(config, 'architecture', config))}"
        )
    return config


def _family_name(name: str) -> str:
    """The class that generates, of one that shares all but its output with it."""
    trunk = next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
    return f"{trunk}ForCausalLM"


def _class_name(fields: Fields) -> str:
    names = fields.values.get("architectures")
    if names is None:
        names = [_MODEL_TYPES.get(fields.text("model_type"), fields.text("model_type"))]
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        raise fields.fault("architectures", "a list of one class name")
    return names[0]


def _refuse_quantised(fields: Fields) -> None:
    for key in ("quantization_config", "compression_config"):
        table = fields.optional_table(key)
        if table is not None:
            method = shorten(table.values.get("quant_method", "unknown"))
            raise ModelError(
                f"{fields.source}: the weights are quantised ({key}: {method}), which is not supported in "
                f"safetensors; supported are F32, F16 and BF16 weights, or quantised ones in a GGUF file"
            )


def _num_kv_heads(fields: Fields, family: Family, num_heads: int) -> int:
    """An explicit null means as many as query heads; a missing key means the class's default."""
    default = num_heads if "num_key_value_heads" in fields else family.num_kv_heads or num_heads
    return fields.integer("num_key_value_heads", default)


def _head_dim(fields: Fields, family: Family, hidden_size: int, num_heads: int) -> int:
    stated = fields.optional_integer("head_dim") or family.head_dim
    return stated or head_dim_of(hidden_size, num_heads, fields.source)


def _windows(fields: Fields, family: Family, num_layers: int) -> tuple[int, ...]:
    """By layer: a query of a windowed layer sees itself and the window - 1 tokens before it."""
    if family.has_layer_types:
        return _windows_by_layer(fields, num_layers)
    window = family.sliding_window
    if window is not None and "sliding_window" in fields:
        window = fields.optional_integer("sliding_window")
    kind = "full_attention" if window is None else "sliding_attention"
    if any(other != kind for other in _layer_types(fields, num_layers) or ()):
        raise fields.fault("layer_types", f"{kind} in all layers of this architecture")
    return () if window is None else (window,) * num_layers


def _windows_by_layer(fields: Fields, num_layers: int) -> tuple[int, ...]:
    window = fields.integer("sliding_window", 0) if "sliding_window" in fields else _QWEN_WINDOW
    if not fields.flag("use_sliding_window", False):
        window = 0
    kinds = _layer_types(fields, num_layers)
    if kinds is None:
        first = fields.integer("max_window_layers", _QWEN_FULL_LAYERS, low=0)
        windows = tuple(window if layer >= first else 0 for layer in range(num_layers))
    elif window == 0 and "sliding_attention" in kinds:
        raise fields.fault("layer_types", "full_attention in all layers, as no sliding window is in use")
    else:
        windows = tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    return windows if any(windows) else ()


def _layer_types(fields: Fields, num_layers: int) -> list[str] | None:
    kinds = fields.values.get("layer_types")
    if kinds is None:
        return None
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in known for kind in kinds):
        raise fields.fault("layer_types", f"a list of {num_layers} times {' or '.join(known)}")
    return kinds


def _eos_token_ids(files: HfFiles, family: Family) -> tuple[int, ...]:
    """Whatever any of the files says ends a text; the class's default only where none of them does."""
    ids = [*_token_ids(files.generation, "eos_token_id"), *_token_ids(files.config, "eos_token_id")]
    if files.tokenizer_eos is not None:
        ids.append(files.tokenizer_eos)
    if not ids and "eos_token_id" not in files.config and family.eos_token_id is not None:
        ids.append(family.eos_token_id)
    return tuple(dict.fromkeys(ids))


def _token_ids(fields: Fields, key: str) -> list[int]:
    value = fields.values.get(key)
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    if not all(isinstance(token_id, int) and not isinstance(token_id, bool) for token_id in ids):
        raise fields.fault(key, "a token id or a list of them")
    return ids


def _bos_token_id(fields: Fields, family: Family) -> int | None:
    if "bos_token_id" in fields:
        return fields.optional_integer("bos_token_id", low=0)
    return family.bos_token_id
