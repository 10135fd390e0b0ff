"""The rules over HTTP, with any OpenAI client. Takes the server's address."""

from __future__ import annotations

import sys

from openai import BadRequestError, OpenAI


def main(address: str) -> None:
    client = OpenAI(base_url=address, api_key="none", max_retries=60)  # the server may still be loading
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "Tell me everything about water wheels."}]

    def ask(sampler: dict) -> str:
        answer = client.chat.completions.create(
            model=model, messages=messages, temperature=0, max_tokens=200, extra_body={"sampler": sampler}
        )
        print(f"{sampler}: {answer.usage.completion_tokens} tokens, {answer.choices[0].finish_reason}")
        return answer.choices[0].message.content

    print(ask({"name": "wind-down", "arguments": {"after": 20}}))
    try:
        ask({"name": "no-repeat-ngram", "arguments": {"n": 0}})
    except BadRequestError as error:
        print("refused:", error.body["message"])


main(sys.argv[1])
