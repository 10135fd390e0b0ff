"""Tools and reasoning as other people's clients use them, on the embedded model: its calls are forced by a grammar."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from anthropic import Anthropic
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from support_serving import Serving
from support_tools import CHAT_TOOLS, MESSAGE_TOOLS, RESPONSE_TOOLS

QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris for 3 days?"}]
NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 120}


@pytest.fixture(scope="module")
def client(served: Serving) -> Any:
    with openai.OpenAI(
        base_url=f"{served.url}/v1", api_key="none", max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


@pytest.fixture(scope="module")
def anthropic_client(served: Serving) -> Any:
    with Anthropic(
        base_url=served.url, api_key="none", max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


def is_weather(arguments: dict[str, Any]) -> bool:
    return isinstance(arguments["city"], str) and isinstance(arguments.get("days", 0), int)


def test_a_tool_that_is_named_is_called_with_arguments_that_fit(client: Any) -> None:
    asked = {"model": "smollm2", "messages": QUESTION, "tools": CHAT_TOOLS, "tool_choice": NAMED, **GREEDY}
    choice = client.chat.completions.create(**asked).choices[0]
    [call] = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert is_weather(json.loads(call.function.arguments))
    assert (choice.finish_reason, choice.message.content) == ("stop", None)
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.delta" in kinds
    assert [(one.function.name, one.function.arguments) for one in final] == [
        (call.function.name, call.function.arguments)
    ]


def test_one_of_the_tools_is_called_where_one_must_be(client: Any) -> None:
    choice = client.chat.completions.create(
        model="smollm2",
        messages=QUESTION,
        tools=CHAT_TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        **GREEDY,
    ).choices[0]
    [call] = choice.message.tool_calls
    assert call.function.name in ("get_weather", "now")
    assert isinstance(json.loads(call.function.arguments), dict)
    assert choice.finish_reason == "tool_calls"


class Weather(BaseModel):
    """Tells the weather."""

    city: str
    days: int


def test_the_helper_for_tools_of_pydantic_parses_the_arguments(client: Any) -> None:
    completion = client.chat.completions.parse(
        model="smollm2",
        messages=QUESTION,
        tools=[openai.pydantic_function_tool(Weather)],
        tool_choice={"type": "function", "function": {"name": "Weather"}},
        **GREEDY,
    )
    [call] = completion.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)


def test_responses_call_tools_whole_and_streamed(client: Any) -> None:
    asked: dict[str, Any] = {
        "model": "smollm2",
        "input": QUESTION,
        "tools": RESPONSE_TOOLS,
        "tool_choice": {"type": "function", "name": "get_weather"},
        "temperature": 0,
        "max_output_tokens": 120,
    }
    [call] = client.responses.create(**asked).output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert is_weather(json.loads(call.arguments))
    with client.responses.stream(**asked) as stream:
        told = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
        [final] = stream.get_final_response().output
    assert told == final.arguments == call.arguments
    back = [
        *QUESTION,
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Sun"},
    ]
    answer = client.responses.create(**{**asked, "input": back, "tool_choice": "none"})
    assert answer.output_text


def test_messages_call_tools_whole_and_streamed(anthropic_client: Any) -> None:
    asked: dict[str, Any] = {
        "model": "smollm2",
        "max_tokens": 120,
        "messages": QUESTION,
        "tools": MESSAGE_TOOLS,
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "extra_body": {"temperature": 0},
    }
    message = anthropic_client.messages.create(**asked)
    [block] = message.content
    assert (block.type, block.name, message.stop_reason) == ("tool_use", "get_weather", "tool_use")
    assert is_weather(block.input)
    with anthropic_client.messages.stream(**asked) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        [final] = stream.get_final_message().content
    assert json.loads("".join(pieces)) == final.input == block.input
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "Sun"}
    back = [
        *QUESTION,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    answer = anthropic_client.messages.create(**{**asked, "messages": back, "tool_choice": {"type": "none"}})
    assert answer.content[0].text


CALLED: list[tuple[str, Any]] = []


@tool
def get_weather(city: str) -> str:
    """Tells the weather in a city."""
    CALLED.append(("get_weather", city))
    return f"Sun in {city}"


@tool
def get_time(zone: str) -> str:
    """Tells the time in a time zone."""
    CALLED.append(("get_time", zone))
    return "12:00"


@wrap_model_call
def one_tool_after_the_other(request: ModelRequest, handler: Any) -> ModelResponse:
    """So that what a small model does is known beforehand: each tool once, then the answer."""
    num_results = sum(isinstance(message, ToolMessage) for message in request.messages)
    choices = ["get_weather", "get_time", "none"]
    return handler(request.override(tool_choice=choices[num_results]))


def chat_model(served: Serving) -> ChatOpenAI:
    return ChatOpenAI(
        model="smollm2",
        base_url=f"{served.url}/v1",
        api_key="none",
        temperature=0,
        max_tokens=60,
        max_retries=0,
    )


def test_a_langchain_model_with_bound_tools_calls_one_whole_and_streamed(served: Serving) -> None:
    bound = chat_model(served).bind_tools(
        [get_weather, get_time], tool_choice="get_weather", parallel_tool_calls=False
    )
    [call] = bound.invoke("What is the weather in Paris?").tool_calls
    assert call["name"] == "get_weather"
    assert isinstance(call["args"]["city"], str)
    pieces = list(bound.stream("What is the weather in Paris?"))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert [(one["name"], one["args"]) for one in whole.tool_calls] == [(call["name"], call["args"])]


def test_a_langchain_agent_with_two_tools_runs_to_its_answer(served: Serving) -> None:
    CALLED.clear()
    agent = create_agent(chat_model(served), [get_weather, get_time], middleware=[one_tool_after_the_other])
    messages = agent.invoke({"messages": [("user", "What are the weather and the time in Paris?")]})[
        "messages"
    ]
    assert [name for name, _ in CALLED] == ["get_weather", "get_time"]
    results = [message.content for message in messages if isinstance(message, ToolMessage)]
    assert results == [f"Sun in {CALLED[0][1]}", "12:00"]
    assert isinstance(messages[-1], AIMessage)
    assert messages[-1].content
    assert not messages[-1].tool_calls
