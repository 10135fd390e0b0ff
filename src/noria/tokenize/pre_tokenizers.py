"""What `tokenizer.ggml.pre` names: how a byte-level vocabulary's text is normalised and split before merging.

The patterns are those of the models' own tokenizer.json files; the names are the GGUF format's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from noria.config.errors import ModelError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """splits: patterns applied in order; each match and the text between matches become pieces of their own.

    ignore_merges: a whole piece that is in the vocabulary is one token, whatever the merges say.
    adds_bos: the start token precedes a plain prompt unless the file says otherwise.
    is_nfc: text is first put into Unicode's composed form.
    """

    splits: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False
    is_nfc: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Split, then spell bytes in GPT-2's alphabet."""
        steps = [pre_tokenizers.Split(Regex(split), behavior="isolated") for split in self.splits]
        return pre_tokenizers.Sequence(
            [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )

    def build_normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.is_nfc else None


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of a `tokenizer.ggml.pre`; an empty name is "default". Raises ModelError."""
    found = _BY_NAME.get(name or "default")
    if found is None:
        known = ", ".join(sorted(_BY_NAME))
        raise ModelError(f"tokenizer.ggml.pre is {name!r}, a pre-tokenizer that is not known; known: {known}")
    return found


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Upper case before lower case; letters without case and marks count as either.
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CAPITALISED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
_ALL_CAPITALS = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_PATH_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = "|".join((_CONTRACTION, _WORD, r"\p{N}{1,3}", _SYMBOLS, _SPACE))
_QWEN2 = "|".join((_CONTRACTION, _WORD, r"\p{N}", _SYMBOLS, _SPACE))
_QWEN35 = "|".join(
    (
        _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"\p{N}",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        _SPACE,
    )
)
_TEKKEN = "|".join((_CAPITALISED, _ALL_CAPITALS, r"\p{N}", _PATH_SYMBOLS, _SPACE))
_GPT4O = "|".join(
    (
        f"{_CAPITALISED}{_CONTRACTION}?",
        f"{_ALL_CAPITALS}{_CONTRACTION}?",
        r"\p{N}{1,3}",
        _PATH_SYMBOLS,
        _SPACE,
    )
)
_DEEPSEEK3 = "|".join(
    (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        _SPACE,
    )
)
_SEED_CODER = "|".join((_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACE))
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+"
_CJK = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
# The letters that DeepSeek's first tokenizer counts as one word: those with case, as of its Unicode version.
_CASED_LETTERS = (
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}"
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}"
    r"\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}"
    r"\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}"
    r"\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}"
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}"
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}"
    r"\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}"
    r"\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}"
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}"
    r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
    r"\x{1E900}-\x{1E943}"
)

_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_CASED_LETTERS}]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
    r"\s+$",
    _CJK,
    r"\p{N}+",
)
_KANA_OR_HAN = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"

_FAMILIES: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "gpt-2 phi-2 jais trillion granite-docling exaone4 mellum gigachat a.x-4.0": PreTokenizer((_GPT2,)),
    "mpt olmo": PreTokenizer((_GPT2,), is_nfc=True),
    "smollm starcoder refact codeshell exaone minerva-7b mellum2": PreTokenizer((r"\p{N}", _GPT2)),
    "command-r": PreTokenizer((r"\p{N}", _GPT2), is_nfc=True),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": PreTokenizer(
        (_LLAMA3,), ignore_merges=True, adds_bos=True
    ),
    "dbrx smaug-bpe glm4 chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "qwen2": PreTokenizer((_QWEN2,), is_nfc=True),
    "deepseek-r1-qwen stablelm2 megrez kormo f2llmv2 hunyuan solar-open grok-2": PreTokenizer((_QWEN2,)),
    "qwen35": PreTokenizer((_QWEN35,), is_nfc=True),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    "gpt-4o llama4 kanana2 minimax-m2": PreTokenizer((_GPT4O,)),
    "seed-coder": PreTokenizer((_SEED_CODER,)),
    "deepseek-v3 hunyuan-dense joyai-llm": PreTokenizer((r"\p{N}{1,3}", _KANA_OR_HAN, _DEEPSEEK3)),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-llm": PreTokenizer(_DEEPSEEK_LLM),
    "bloom poro-chat gpt3-finnish": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, r"\p{N}")),
}
_BY_NAME = {name: pre for names, pre in _FAMILIES.items() for name in names.split()}
