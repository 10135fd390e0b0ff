"""How a chat model is asked whether a document fits a query, in the form that rerankers of this kind are trained on."""

from __future__ import annotations

from typing import Any

from noria.config.errors import RequestError
from noria.config.pooling import Finish, Head
from noria.tokenize.chat_template import ChatOptions
from noria.tokenize.tokenizer import Tokenizer

DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def judging_messages(
    query: str, document: str, words: tuple[str, str], instruction: str | None = None
) -> list[dict[str, str]]:
    """The chat that ends where the answer begins. The document comes last: a query's beginning is shared."""
    # The wording is that of the Qwen3-Reranker model cards, which other models understand as well.
    task = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        f'Note that the answer can only be "{words[0]}" or "{words[1]}".'
    )
    content = f"<Instruct>: {instruction or DEFAULT_INSTRUCTION}\n<Query>: {query}\n<Document>: {document}"
    return [{"role": "system", "content": task}, {"role": "user", "content": content}]


def judging_options() -> ChatOptions:
    """The answer follows at once: a model that thinks is told not to."""
    return ChatOptions(add_generation_prompt=True, template_kwargs={"enable_thinking": False})


def word_ids(tokenizer: Tokenizer, words: tuple[str, str]) -> dict[str, Any]:
    """The fields of PoolingParams that ask for the share of each word.

    Raises RequestError for a word of several tokens.
    """
    ids = []
    for word in words:
        encoded = tokenizer.encode(word, add_special_tokens=False)
        if len(encoded) != 1:
            raise RequestError(
                f"this model's tokenizer has no single token for the word {word!r}: it cannot score by it. "
                "--score-words names two others",
                "model",
            )
        ids.append(encoded[0])
    return {"head": Head.TOKENS, "token_ids": tuple(ids), "finish": Finish.SOFTMAX}
