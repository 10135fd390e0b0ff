import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from noria.config.errors import ModelError, RequestError
from noria.config.tokenizer import TokenizerSpec
from noria.tokenize.chat_template import ChatOptions
from noria.tokenize.tokenizer import build_tokenizer
from support_texts import TEXTS
from support_vocabularies import (
    byte_level_reference,
    byte_level_tokenizer,
    gguf_of_byte_level,
    json_tokenizer,
    train_byte_level,
)
from support_word_models import WORD_MODELS

END, START = 0, 1
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
MESSAGES = [{"role": "user", "content": "the wheel <|start|> turns"}]


def with_start_token() -> tokenizers.Tokenizer:
    """A tokenizer whose post-processor puts the start token before every text."""
    encoder = train_byte_level()
    encoder.post_processor = processors.TemplateProcessing(
        single="<|start|> $A", pair="<|start|> $A $B", special_tokens=[("<|start|>", START)]
    )
    return encoder


def llama_like() -> tokenizers.Tokenizer:
    """The shape of Llama 2's tokenizer.json: byte fallback, spaces as pieces, one leading space taken off."""
    words = ("▁the", "▁wheel", "▁", "t", "h", "e", "a", "s")
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocabulary |= {word: 259 + index for index, word in enumerate(words)}
    encoder = tokenizers.Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    encoder.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    encoder.add_special_tokens(["<unk>", "<s>", "</s>"])
    return encoder


@given(TEXTS)
def test_a_tokenizer_json_gives_the_ids_and_text_of_the_original(text):
    reference, tokenizer = byte_level_reference(), JSON_BYTE_LEVEL
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text).ids
    assert tokenizer.decode(ids) == reference.decode(ids)


JSON_BYTE_LEVEL = json_tokenizer(byte_level_reference())
LLAMA_LIKE = json_tokenizer(llama_like())


@given(st.lists(st.integers(0, 266), max_size=16))
def test_sentencepieces_decoder_gives_the_librarys_text(ids):
    reference = llama_like().decode(ids, skip_special_tokens=False)
    if "\ufffd" not in reference:  # of a broken run of bytes the library drops the whole characters too
        assert LLAMA_LIKE.decode(ids, skip_special_tokens=False) == reference


def test_whole_characters_next_to_broken_bytes_are_kept():
    ids = [3 + byte for byte in "é".encode() + b"\xf0\x9f"]
    assert LLAMA_LIKE.decode(ids) == "é\ufffd"


@pytest.mark.parametrize("name", sorted(WORD_MODELS))
@given(data=st.data())
def test_any_other_decoder_gives_the_librarys_text(name, data):
    encoder = WORD_MODELS[name]()
    ids = data.draw(st.lists(st.integers(0, encoder.get_vocab_size() - 1), max_size=16))
    expected = encoder.decode(ids)
    if name == "word suffix":  # its decoder shows the space behind a word only before another word
        expected, ids = encoder.decode([*ids, *ids]), [*ids, *ids]
    assert json_tokenizer(encoder).decode(ids) == expected


def test_words_of_a_word_piece_model_join_behind_a_text():
    tokenizer = json_tokenizer(WORD_MODELS["word piece"]())
    ids = tokenizer.encode("turns wheel")
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" turns wheel"


def test_a_chat_gets_no_second_start_token():
    encoder = with_start_token()
    peer = PreTrainedTokenizerFast(
        tokenizer_object=encoder, bos_token="<|start|>", eos_token="<|end|>", chat_template=TEMPLATE
    )
    tokenizer = json_tokenizer(
        encoder,
        bos_token_id=START,
        special_tokens=(("bos_token", "<|start|>"),),
        chat_templates=(("default", TEMPLATE),),
    )
    expected = peer.apply_chat_template(
        MESSAGES, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert tokenizer.encode_chat(MESSAGES) == expected
    assert expected[0] == START
    assert expected[1] != START
    # A completion follows the tokenizer, whatever the text begins with, unless told otherwise.
    rendered = tokenizer.render_chat(MESSAGES)
    assert tokenizer.encode(rendered) == peer(rendered)["input_ids"] == [START, *expected]
    assert tokenizer.encode(rendered, add_special_tokens=False) == expected
    assert tokenizer.encode_chat(MESSAGES, add_special_tokens=True) == [START, *expected]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, [START, 0]),
        ({"add_bos": False}, [0]),
        ({"add_bos": True}, [START, 0]),
        ({"add_eos": True}, [0, END]),
        ({"add_bos": True, "add_eos": True}, [START, 0, END]),
        ({"add_bos": False, "add_eos": False}, [0]),
    ],
)
def test_what_surrounds_a_prompt_is_the_checkpoints_word_else_the_post_processors(spec, expected):
    tokenizer = json_tokenizer(with_start_token(), bos_token_id=START, eos_token_ids=(END,), **spec)
    letter = tokenizer.encode("a", add_special_tokens=False)
    assert tokenizer.encode("a") == [
        *expected[: expected.index(0)],
        *letter,
        *expected[expected.index(0) + 1 :],
    ]


def test_settings_for_training_batches_are_dropped():
    encoder = train_byte_level()
    encoder.enable_truncation(2)
    encoder.enable_padding(length=8)
    assert (
        json_tokenizer(encoder).encode("the water wheel") == train_byte_level().encode("the water wheel").ids
    )


def test_the_named_start_and_end_tokens_are_special_even_if_the_file_forgot():
    vocabulary = gguf_of_byte_level(byte_level_reference())
    tokenizer = build_tokenizer(TokenizerSpec(vocabulary=vocabulary, eos_token_ids=(300, 0)))
    assert [i in tokenizer.special_ids for i in (300, 301)] == [True, False]
    assert tokenizer.eos_token_ids == (300, 0)
    assert tokenizer.decode([300, 301]) == tokenizer.token_text(301)


def test_ids_outside_the_vocabulary_are_refused():
    tokenizer = byte_level_tokenizer()
    for token_id in (-1, tokenizer.vocab_size, 2**40):
        with pytest.raises(
            RequestError, match=f"token id {token_id} is outside the vocabulary.*480"
        ) as error:
            tokenizer.decode([5, token_id])
        assert error.value.param == "tokens"
        assert tokenizer.token_bytes(token_id) == b""
    assert tokenizer.vocab_size == 481


def test_a_hole_in_the_ids_has_no_text():
    encoder = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 3}, unk_token="a"))
    encoder.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = json_tokenizer(encoder)
    assert tokenizer.vocab_size == 4
    assert tokenizer.decode([0, 1, 3]) == "a b"


def test_text_that_is_not_unicode_is_refused():
    with pytest.raises(RequestError, match="character 2 is the lone surrogate U\\+D83D"):
        byte_level_tokenizer().encode("ab\ud83d")


def test_an_empty_text_has_no_ids_and_no_ids_have_no_text():
    assert byte_level_tokenizer().encode("") == []
    assert byte_level_tokenizer().decode([]) == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (TokenizerSpec(), "must have one tokenizer"),
        (TokenizerSpec(tokenizer_json="{}"), "the tokenizer.json cannot be read"),
        (TokenizerSpec(tokenizer_json="no json"), "the tokenizer.json cannot be read"),
        (
            TokenizerSpec(tokenizer_json=tokenizers.Tokenizer(models.BPE()).to_str()),
            "the tokenizer.json has an empty vocabulary",
        ),
        (
            TokenizerSpec(tokenizer_json=train_byte_level().to_str(), bos_token_id=999),
            "has id 999; the tokenizer has 480 tokens",
        ),
        (
            TokenizerSpec(tokenizer_json=train_byte_level().to_str(), add_bos=True),
            "add_bos\\) but names none",
        ),
        (
            TokenizerSpec(tokenizer_json=train_byte_level().to_str(), add_eos=True),
            "add_eos\\) but names none",
        ),
    ],
)
def test_a_checkpoint_without_a_usable_tokenizer_is_refused(spec, message):
    with pytest.raises(ModelError, match=message):
        build_tokenizer(spec)


def test_a_chat_without_any_template_is_refused_with_the_way_out():
    tokenizer = byte_level_tokenizer()
    assert not tokenizer.has_chat_template
    with pytest.raises(RequestError, match=r"no default chat template.*--chat-template"):
        tokenizer.encode_chat(MESSAGES)
    own = ChatOptions(chat_template="{{ messages[0].content }}")
    assert tokenizer.encode_chat([{"role": "user", "content": "the"}], own) == tokenizer.encode("the")
