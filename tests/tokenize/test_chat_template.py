from dataclasses import replace
from datetime import datetime

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from noria.config.errors import RequestError
from noria.config.tokenizer import TokenizerSpec
from noria.tokenize import chat_template
from noria.tokenize.chat_template import ChatOptions, ChatTemplates
from noria.tokenize.tokenizer import build_tokenizer
from support_vocabularies import byte_level_reference, gguf_of_byte_level

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = """{%- if messages[0]['role'] != 'system' -%}
<|im_start|>system
You turn wheels.<|im_end|>
{% endif -%}
{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

HEADERS = """{{- bos_token }}
{%- if not date is defined %}{% set date = strftime_now('%d %b %Y') %}{% endif %}
{%- set start = 0 %}{% set system = '' %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}{% set start = 1 %}
{%- endif %}
{{- '<|header|>system<|/header|>\\n\\nToday is ' + date + '.\\n' + system + '<|eot|>' }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) + '\\n' }}
    {%- endfor %}
{%- endif %}
{%- for message in messages[start:] %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' }}
            {{- call.function.arguments | tojson }}{{- '}' }}
        {%- endfor %}
    {%- else %}
        {{- '<|header|>' + message.role + '<|/header|>\\n\\n' + message.content | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\\n\\n' }}{% endif %}"""

BRACKETS = """{{ bos_token }}{% set ns = namespace(turn=0) %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (ns.turn % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- set ns.turn = ns.turn + 1 %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] + ' [/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- generation %}{{- ' ' + message['content'] + eos_token }}{%- endgeneration %}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}"""

THINKING = """{%- macro text_of(content) %}
    {%- if content is string %}{{- content }}
    {%- else %}{%- for part in content %}{{- part.text }}{%- endfor %}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- if message.role == 'system' and not loop.first %}{% continue %}{% endif %}
    {%- set content = text_of(message.content) %}
    {%- if message.role == 'assistant' %}
        {%- set reasoning = message.reasoning_content | default('') %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n<think>\\n' + reasoning + '\\n</think>\\n\\n' + content + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

STYLES = {"chatml": CHATML, "headers": HEADERS, "brackets": BRACKETS, "thinking": THINKING}

USER = {"role": "user", "content": "Turn <b>the</b> wheel & count: \"3\" 'é' 🙂\n"}
ASSISTANT = {"role": "assistant", "content": "  One, two.  "}
CHATS = {
    "one turn": [USER],
    "three turns": [USER, ASSISTANT, USER],
    "ends with the assistant": [USER, ASSISTANT],
    "with a system message": [{"role": "system", "content": " Be brief. "}, USER],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "turn",
            "parameters": {"type": "object", "properties": {"é": {"type": "string"}}},
        },
    }
]


def render(template: str, messages, **options) -> str:
    now = lambda: datetime(2024, 7, 9)  # noqa: E731
    return ChatTemplates({"default": template}, SPECIAL_TOKENS, now).render(messages, ChatOptions(**options))


def render_with_transformers(template: str, messages, **options) -> str:
    (rendered,), _ = render_jinja_template([messages], chat_template=template, **SPECIAL_TOKENS, **options)
    return rendered


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize("chat", sorted(CHATS))
@pytest.mark.parametrize("style", sorted(STYLES))
def test_prompts_equal_those_of_transformers(style, chat, generates):
    messages = CHATS[chat]
    if style == "brackets" and chat == "with a system message":
        messages = messages[1:]
    # A template that knows of no tools gets them as text, which transformers does not do.
    tools = TOOLS if style == "headers" else None
    options = {"add_generation_prompt": generates, "tools": tools}
    date = {"date": "9 Jul 2024"}
    expected = render_with_transformers(STYLES[style], messages, **options, **date)
    assert render(STYLES[style], messages, **options, template_kwargs=date) == expected


def test_a_prompt_is_exactly_what_the_template_spells():
    assert render(CHATML, [{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou turn wheels.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_lines_that_only_hold_a_block_leave_no_white_space():
    source = (
        "{% for m in messages %}\n    {% if m.content %}\n  {{ m.role }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert render(source, [USER, ASSISTANT]) == "  user\n  assistant\n"
    assert render(source, [USER]) == render_with_transformers(source, [USER])


def test_the_generation_prompt_is_added_unless_declined():
    assert render(CHATML, [USER]).endswith("<|im_start|>assistant\n")
    assert render(CHATML, [USER], add_generation_prompt=False).endswith("<|im_end|>\n")


def test_text_parts_are_joined_for_a_template_that_takes_text():
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in render(CHATML, [{"role": "user", "content": content}])


@pytest.mark.parametrize(
    "content", ["one two", [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]]
)
def test_a_template_that_reads_parts_gets_them_and_one_that_asks_gets_what_was_sent(content):
    messages = [{"role": "user", "content": content}]
    assert render(THINKING, messages, add_generation_prompt=False) == "<|im_start|>user\none two<|im_end|>\n"
    parts_only = (
        "{% for m in messages %}{% for p in m.content %}<{{ p.type }}>{{ p.text }}{% endfor %}{% endfor %}"
    )
    expected = "<text>one two" if isinstance(content, str) else "<text>one <text>two"
    assert render(parts_only, messages) == expected
    through_a_variable = "{% set c = messages[0]['content'] %}{% for p in c %}{{ p.text }}{% endfor %}"
    assert render(through_a_variable, messages) == "one two"


@pytest.mark.parametrize("wanted", ["string", "openai", "auto"])
def test_what_templates_take_content_to_be_can_be_said_for_them(wanted):
    shows_which = "{% set c = messages[0].content %}{{ 'text' if c is string else 'parts' }}"
    templates = ChatTemplates({"default": shows_which}, {}, content=chat_template.CONTENT_FORMATS[wanted])
    for content in ("one", [{"type": "text", "text": "one"}]):
        shown = templates.render([{"role": "user", "content": content}], ChatOptions())
        assert shown == ("parts" if wanted == "openai" else "text")


def test_the_format_of_content_reaches_a_models_templates():
    loops = "{% for part in messages[0].content %}[{{ part.text or part }}]{% endfor %}"
    spec = TokenizerSpec(
        vocabulary=gguf_of_byte_level(byte_level_reference()), chat_templates=(("default", loops),)
    )
    messages = [{"role": "user", "content": "ab"}]
    assert build_tokenizer(spec).render_chat(messages) == "[ab]"
    assert build_tokenizer(replace(spec, content_format="string")).render_chat(messages) == "[a][b]"


def test_arguments_of_tool_calls_reach_the_template_as_objects():
    arguments = '{"é": "<3>", "n": 1}'
    call = {"id": "1", "type": "function", "function": {"name": "turn", "arguments": arguments}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    rendered = render(HEADERS, messages, add_generation_prompt=False)
    assert rendered.endswith('{"name": "turn", "parameters": {"é": "<3>", "n": 1}}')


def test_json_is_written_plainly_and_with_the_templates_own_layout():
    value = {"b": "<é & 'x'>", "a": [1, None, True]}
    show = lambda filter: render("{{ value | " + filter + " }}", [USER], template_kwargs={"value": value})  # noqa: E731
    assert show("tojson") == '{"b": "<é & \'x\'>", "a": [1, null, true]}'
    assert show("tojson(sort_keys=True, separators=(',', ':'))") == '{"a":[1,null,true],"b":"<é & \'x\'>"}'
    assert show("tojson(ensure_ascii=True)") == '{"b": "<\\u00e9 & \'x\'>", "a": [1, null, true]}'
    assert show("tojson(indent=1)").startswith('{\n "b"')


def test_templates_tell_the_time_they_are_given():
    assert "Today is 09 Jul 2024." in render(HEADERS, [USER])


def test_template_kwargs_and_documents_are_variables_of_the_template():
    rendered = render(THINKING, [USER], template_kwargs={"enable_thinking": False})
    assert rendered.endswith("<think>\n\n</think>\n\n")
    documents = [{"title": "Wheels", "text": "turn"}]
    assert render("{{ documents[0].title }}", [USER], documents=documents) == "Wheels"


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt"])
def test_template_kwargs_cannot_stand_in_for_fields_of_the_request(name):
    with pytest.raises(RequestError, match=f"chat_template_kwargs must not hold {name}") as error:
        render(CHATML, [USER], template_kwargs={name: []})
    assert error.value.param == "chat_template_kwargs"


def test_templates_are_chosen_by_name_by_tools_and_by_default():
    named = ChatTemplates({"default": "plain", "tool_use": "tools", "rag": "documents"}, {})
    assert named.names == ("default", "rag", "tool_use")
    assert named.render([USER], ChatOptions()) == "plain"
    assert named.render([USER], ChatOptions(tools=TOOLS)) == "tools"
    assert named.render([USER], ChatOptions(chat_template="rag")) == "documents"
    assert named.render([USER], ChatOptions(chat_template="{{ messages | length }}")) == "1"
    with pytest.raises(RequestError, match=r"'rug', neither .* \(default, rag, tool_use\)") as error:
        named.render([USER], ChatOptions(chat_template="rug"))
    assert error.value.param == "chat_template"


def test_without_a_default_template_the_reply_says_what_there_is_and_what_to_do():
    with pytest.raises(RequestError, match=r"no default chat template \(it has: rag\).*--chat-template"):
        ChatTemplates({"rag": ""}, {}).render([USER], ChatOptions())


def test_a_template_that_refuses_the_messages_has_its_reason_passed_on():
    with pytest.raises(
        RequestError, match="refuses these messages: Conversation roles must alternate"
    ) as error:
        render(BRACKETS, [USER, USER])
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    "body",
    [
        "{{ messages[0].absent.deeper }}",
        "{{ 1 // 0 }}",
        "{{ 'a' + 1 }}",
        "{{ messages[0]['content'] + none }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
    ],
)
def test_a_template_that_fails_or_reaches_out_of_its_sandbox_is_a_refused_request(body):
    with pytest.raises(RequestError, match="the chat template failed on these messages") as error:
        render(body, [USER])
    assert error.value.param == "messages"


def test_errors_are_bounded_in_length():
    with pytest.raises(RequestError) as error:
        render("{{ raise_exception('x' * 100000) }}", [USER])
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ a", "{% nonsense %}", "{% for x in y %}", "{{ a | nonsense }}"]
)
def test_an_invalid_template_is_refused_with_its_line(source):
    with pytest.raises(RequestError, match="not valid Jinja: line 2") as error:
        render("\n" + source, [USER])
    assert error.value.param == "chat_template"


def test_a_template_nested_too_deeply_is_refused():
    with pytest.raises(RequestError, match="the chat template"):
        render("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", [USER])


def test_a_prompt_beyond_the_limit_is_refused_before_it_is_whole(monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_PROMPT_CHARACTERS", 1000)
    assert len(render("{% for i in range(100) %}0123456789{% endfor %}", [USER])) == 1000
    with pytest.raises(RequestError, match="more than 1000 characters"):
        render("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", [USER])


def test_messages_are_left_as_they_were():
    messages = [{"role": "user", "content": [{"type": "text", "text": "one"}], "name": None}]
    render(CHATML, messages)
    render(CHATML, messages, continue_final_message=True)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "one"}], "name": None}]
