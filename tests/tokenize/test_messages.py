import pytest

from noria.config.errors import RequestError
from noria.tokenize.messages import ContentFormat, prepare_messages

USER = {"role": "user", "content": "Hi"}


def prepare(message, content=ContentFormat.TEXT):
    return prepare_messages([message], content)[0]


def test_absent_fields_stay_absent():
    assert prepare({"role": "assistant", "content": None, "name": None, "tool_calls": None}) == {
        "role": "assistant"
    }


def test_content_takes_the_form_that_the_template_reads():
    parts = [{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}]
    message = {"role": "user", "content": parts}
    plain = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert prepare(message)["content"] == "one\ntwo"
    assert prepare(message, ContentFormat.PARTS)["content"] == plain
    assert prepare(message, ContentFormat.EITHER)["content"] == plain
    assert prepare(USER, ContentFormat.PARTS)["content"] == [{"type": "text", "text": "Hi"}]
    assert prepare(USER, ContentFormat.EITHER)["content"] == "Hi"


def test_a_refusal_of_an_earlier_turn_is_text():
    message = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert prepare(message)["content"] == "No."


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, "é"]}', {"a": [1, "é"]}),
        ("", {}),
        ("{", "{"),
        ("[1]", "[1]"),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_arguments_are_the_object_they_spell_else_what_was_sent(arguments, expected):
    call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    prepared = prepare({"role": "assistant", "tool_calls": [call, "odd"]})
    assert prepared["tool_calls"] == [{"id": "c", "function": {"name": "f", "arguments": expected}}, "odd"]
    assert call["function"]["arguments"] == arguments


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_goes_by_the_names_that_templates_use(name):
    prepared = prepare({"role": "assistant", "content": "x", name: "because"})
    assert (prepared["reasoning_content"], prepared["thinking"]) == ("because", "because")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Hi", r"messages\[0\] must be an object with a role"),
        ({"content": "Hi"}, r"messages\[0\] must be an object with a role"),
        ({"role": 1, "content": "Hi"}, r"messages\[0\] must be an object with a role"),
        ({"role": "user", "content": 5}, r"messages\[0\].content must be a string or a list of text parts"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            r"messages\[0\].content\[0\] is the type 'image_url'; supported are parts of type text",
        ),
        ({"role": "user", "content": ["Hi"]}, r"messages\[0\].content\[0\] is 'Hi'"),
        ({"role": "user", "content": [{"type": "text"}]}, r"must have a string as its text"),
    ],
)
def test_what_is_no_text_message_is_refused_with_its_place(message, reason):
    with pytest.raises(RequestError, match=reason) as error:
        prepare(message)
    assert error.value.param == "messages"


def test_a_chat_without_messages_is_refused():
    with pytest.raises(RequestError, match="messages is empty"):
        prepare_messages([], ContentFormat.TEXT)
