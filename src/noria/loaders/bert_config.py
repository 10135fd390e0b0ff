"""The shapes and constants of BERT, RoBERTa and XLM-RoBERTa, as encoders or classifiers, from their config.json.

A key that a config.json leaves out has the default of its transformers class (5.24).
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.model import EncoderConfig, ModelConfig, RopeConfig
from noria.loaders.fields import Fields
from noria.loaders.hf_ending import classifier_config
from noria.loaders.model_checks import head_dim_of


@dataclass(frozen=True, slots=True)
class _Class:
    """A transformers class: what builds it here, and what of its defaults differs."""

    architecture: str
    has_head: bool = False
    vocab_size: int = 30522
    pad_token_id: int = 0


_CLASSES = {
    "BertModel": _Class("bert"),
    "BertForSequenceClassification": _Class("bert", has_head=True),
    "RobertaModel": _Class("roberta", False, 50265, 1),
    "RobertaForSequenceClassification": _Class("roberta", True, 50265, 1),
    "XLMRobertaModel": _Class("roberta", False, 30522, 1),
    "XLMRobertaForSequenceClassification": _Class("roberta", True, 30522, 1),
}
ENCODER_CLASSES = tuple(_CLASSES)
ENCODER_TYPES = {"bert": "BertModel", "roberta": "RobertaModel", "xlm-roberta": "XLMRobertaModel"}

_SAME_ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh", "swish": "silu"}


def encoder_config(name: str, fields: Fields) -> ModelConfig:
    """name: of ENCODER_CLASSES. Raises ModelError."""
    kind = _CLASSES[name]
    _refuse_variants(fields)
    hidden_size, num_heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    num_positions = fields.integer("max_position_embeddings", 512)
    offset = 0
    if kind.architecture == "roberta":  # places are counted from behind that of the padding token
        offset = fields.integer("pad_token_id", kind.pad_token_id, low=0) + 1
        if offset >= num_positions:
            raise fields.fault("max_position_embeddings", f"more than {offset}, which RoBERTa leaves unused")
    act = fields.text("hidden_act", "gelu")
    return ModelConfig(
        architecture=f"{kind.architecture}_classifier" if kind.has_head else kind.architecture,
        vocab_size=fields.integer("vocab_size", kind.vocab_size),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size", 3072),
        num_layers=fields.integer("num_hidden_layers", 12),
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=head_dim_of(hidden_size, num_heads, fields.source),
        max_position=num_positions - offset,
        norm_eps=fields.number("layer_norm_eps", 1e-12),
        rope=RopeConfig(kind="none"),
        tie_word_embeddings=False,
        hidden_act=_SAME_ACTIVATIONS.get(act, act),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        has_logits=False,
        classifier=classifier_config(fields, "cls") if kind.has_head else None,
        encoder=EncoderConfig(
            num_token_types=fields.integer("type_vocab_size", 2),
            num_positions=num_positions,
            position_offset=offset,
        ),
    )


def _refuse_variants(fields: Fields) -> None:
    if fields.text("position_embedding_type", "absolute") != "absolute":
        raise fields.fault("position_embedding_type", '"absolute", the only kind supported')
    for key in ("is_decoder", "add_cross_attention"):
        if fields.flag(key, False):
            raise fields.fault(key, "false: only encoders are supported here")
