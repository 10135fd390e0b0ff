import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from noria.config.errors import RequestError
from noria.config.tokenizer import TokenizerSpec
from noria.tokenize.chat_template import ChatOptions, ChatTemplates
from noria.tokenize.tokenizer import build_tokenizer
from support_vocabularies import byte_level_reference, gguf_of_byte_level

PLAIN = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
TRIMMED = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content | trim }}<|end|>\n{% endfor %}"
IF_ANY = (
    "{% for m in messages %}{% if m.content %}<|start|>{{ m.role }}\n{{ m.content }}{% endif %}{% endfor %}"
)
PARTS = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{% for p in m.content %}{{ p.text }}{% endfor %}"
    "<|end|>{% endfor %}"
)
TEMPLATES = {"plain": PLAIN, "trimmed": TRIMMED, "only if any": IF_ANY, "parts": PARTS}
CONTINUE = ChatOptions(continue_final_message=True)
TEXTS = [
    "1, 2, 3,",
    "1, 2, 3, ",
    "1, 2, 3,\n",
    "",
    " ",
    "\n",
    "  both  ",
    "🙂",
    "<|end|>",
    "NoriaGoesOnHere0",
    "user",
]


def chat(text):
    return [{"role": "user", "content": "Count to ten"}, {"role": "assistant", "content": text}]


def render(template, messages, options=CONTINUE):
    return ChatTemplates({"default": template}, {}).render(messages, options)


def head(template):
    """The prompt up to the assistant's text."""
    whole = render(template, chat("@"), ChatOptions(add_generation_prompt=False))
    return whole[: whole.rindex("@")]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_the_prompt_ends_exactly_at_the_given_text(name, text):
    assert render(TEMPLATES[name], chat(text)) == head(TEMPLATES[name]) + text


@given(text=st.text(max_size=12), name=st.sampled_from(sorted(TEMPLATES)))
def test_the_prompt_ends_exactly_at_any_text(text, name):
    assert render(TEMPLATES[name], chat(text)) == head(TEMPLATES[name]) + text


@pytest.mark.parametrize("text", ["1, 2, 3,", "1, 2, 3, ", "🙂", "a\nb"])
def test_prompts_equal_those_of_transformers(text):
    (expected,), _ = render_jinja_template([chat(text)], chat_template=PLAIN, continue_final_message=True)
    assert render(PLAIN, chat(text)) == expected


@pytest.mark.parametrize("text", ["1, 2, 3,", "1, 2, 3, ", "1,\n", "🙂"])
def test_the_ids_are_those_of_the_prompt_and_hold_no_end_marker_behind_the_text(text):
    vocabulary = gguf_of_byte_level(byte_level_reference())
    tokenizer = build_tokenizer(TokenizerSpec(vocabulary=vocabulary, chat_templates=(("default", PLAIN),)))
    ids = tokenizer.encode_chat(chat(text), CONTINUE)
    assert tokenizer.decode(ids, skip_special_tokens=False) == head(PLAIN) + text
    assert ids == byte_level_reference().encode(head(PLAIN) + text).ids
    end = byte_level_reference().token_to_id("<|end|>")
    assert ids.count(end) == 1  # the user's turn


def test_of_text_parts_the_last_is_continued():
    messages = chat([{"type": "text", "text": "one "}, {"type": "text", "text": "two "}])
    assert render(PARTS, messages) == head(PARTS) + "one two "
    assert render(PLAIN, messages) == head(PLAIN) + "one \ntwo "


def test_a_message_of_no_parts_is_continued_as_an_empty_text():
    assert render(PARTS, chat([])) == head(PARTS)
    assert render(PLAIN, chat([])) == head(PLAIN)


def test_a_template_that_shows_the_text_twice_shows_it_unmarked():
    assert render("{{ messages | tojson }} {{ messages[-1].content }}", chat(" a")[1:]) == (
        '[{"role": "assistant", "content": " a"}]  a'
    )


def test_a_text_that_is_also_in_an_earlier_message_is_continued_at_the_end():
    messages = [*chat("again"), *chat("again")]
    assert render(PLAIN, messages).count("again") == 2


def test_a_new_turn_cannot_be_asked_for_as_well():
    options = ChatOptions(add_generation_prompt=True, continue_final_message=True)
    with pytest.raises(RequestError, match="cannot both be set"):
        render(PLAIN, chat("1,"), options)
    assert render(PLAIN, chat("1,"), ChatOptions(add_generation_prompt=False, continue_final_message=True))


def test_a_final_message_without_content_cannot_be_continued():
    with pytest.raises(RequestError, match="no content to continue") as error:
        render(PLAIN, [{"role": "assistant", "content": None}])
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content }}", "leaves the final message's text out"),
        ("{{ messages[-1].content | replace('1', 'one') }}", "rewrites the final message's text"),
    ],
)
def test_a_template_that_cannot_end_with_the_text_refuses_to_continue(template, reason):
    with pytest.raises(RequestError, match=reason):
        render(template, chat("1, 2"))
