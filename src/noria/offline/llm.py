"""The offline API: a model in this process, prompts in, outputs out."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any

from noria import __version__
from noria.chats.formats import Formats
from noria.chats.planning import Answers, check_answers, plan_chat
from noria.chats.tool_use import NO_TOOLS
from noria.chats.tools import ToolsType, tools_of
from noria.config.abilities import Task
from noria.config.asked import EngineOptions
from noria.config.offline import OfflineOptions
from noria.config.operating_point import over_operating_point
from noria.config.parse import build, given_by_mapping
from noria.config.point_in_force import point_in_force
from noria.config.report import notices
from noria.config.resolved import Resolved
from noria.config.settle_abilities import settle_abilities
from noria.config.tools import ToolOptions
from noria.core.acceptance import max_known_tokens
from noria.engine.build import load_engine, start_engine
from noria.engine.fingerprint import model_identity
from noria.engine.opening import open_model
from noria.engine.trace import chrome_trace
from noria.offline.job import Job, News
from noria.offline.outputs import RequestOutput
from noria.offline.progress import bytes_progress
from noria.offline.prompts import (
    Conversation,
    Prompt,
    PromptType,
    as_conversations,
    as_list,
    each,
    params_for,
    read_prompt,
)
from noria.offline.reading import (
    ClassificationOutput,
    EmbeddingOutput,
    Reader,
    RerankOptions,
    RerankOutput,
    ScoreOutput,
)
from noria.sampling.defaults import params_over_defaults
from noria.sampling.params import SamplingParams
from noria.sampling.validate import check_against_vocabulary, check_token_ids
from noria.tokenize.bad_words import with_bad_word_ids
from noria.tokenize.chat_template import ChatOptions
from noria.tokenize.scoring import pairs_of
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

ALL_LOGPROBS = -1

logger = logging.getLogger("noria")


class LLM:
    """A model, its tokenizer and a running engine.

    model: a path to a GGUF file or a safetensors directory, a hub id, or None for smollm2, which `noria pull` fetches.
    settings: as flags of `noria serve` spell them, with underscores (max_model_len=4096, kv_cache_memory="1GiB",
    tool_call_parser="hermes"). Neither the environment nor a config file is looked at.
    show_progress: a bar while weights load.

        from noria import LLM, SamplingParams
        llm = LLM()
        [result] = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=8))
        print(result.outputs[0].text)

    name: the model's, as it was asked for. resolved: every setting as it was settled, and why. default_params: what
    None stands for as sampling_params. Raises ModelError, ConfigError, and PluginError for an installed package that is
    broken. Usable as a context manager; `close` frees the model.
    """

    def __init__(
        self, model: str | PathLike[str] | None = None, *, show_progress: bool = True, **settings: Any
    ) -> None:
        given = settings if model is None else {**settings, "model": str(model)}
        read = given_by_mapping(OfflineOptions, given)
        options = build(OfflineOptions, over_operating_point(OfflineOptions, read))
        self._start(options.engine, options.tools, show_progress)

    @classmethod
    def from_options(cls, options: EngineOptions, show_progress: bool = True) -> LLM:
        """An LLM of options that were read already."""
        llm = cls.__new__(cls)
        llm._start(options, ToolOptions(), show_progress)
        return llm

    def _start(self, options: EngineOptions, tools: ToolOptions, show_progress: bool) -> None:
        opened = open_model(options.model)
        if in_force := point_in_force(options):
            warning = in_force.warning_here(model_identity(opened), __version__)
            logger.log(logging.WARNING if warning else logging.INFO, warning or in_force.words())
        abilities = settle_abilities(opened.checkpoint.config, options.pooling)
        self.name = opened.name
        self.tokenizer: Tokenizer = build_tokenizer(opened.tokenizer)
        self._formats = Formats.of(tools, self.tokenizer)
        self.generation_defaults = opened.generation_defaults
        with bytes_progress("Loading weights", is_shown=show_progress) as progress:
            loaded = load_engine(opened, options, _tell, progress)
        engine = start_engine(loaded)
        self.client = engine.client
        self.resolved = engine.resolved
        self.default_params = params_over_defaults({}, opened.generation_defaults)
        self._random = Random(self.resolved.config.seed)
        self._reader = Reader(self.client, self.tokenizer, abilities)

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        show_progress: bool = True,
    ) -> list[RequestOutput]:
        """Outputs for one prompt or several, in their order.

        sampling_params: one for all, or one each; None takes `default_params`, which the model's makers recommend
        (see generation_config). Raises RequestError, before anything is computed, for a
        prompt that cannot be served. A request that fails by itself (a logits processor raised) has
        finish_reason "error"; the others go on.
        """
        read = each(as_list(prompts), lambda prompt: read_prompt(prompt, self.tokenizer))
        return self._run(read, params_for(sampling_params, len(read), self.default_params), show_progress)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        options: ChatOptions | None = None,
        show_progress: bool = True,
        tools: ToolsType | None = None,
    ) -> list[RequestOutput]:
        """As generate, for one conversation or several (lists of {"role", "content"}).

        tools: what all of them may call, as the server takes tools; ChatTools says how. Reasoning and calls are told
        apart from the text as the server does.
        """
        conversations = as_conversations(messages)
        asked = params_for(sampling_params, len(conversations), self.default_params)
        pairs = list(zip(conversations, asked, strict=True))
        planned = each(pairs, lambda pair: self._read_chat(*pair, options, tools))
        return self._run([prompt for prompt, _ in planned], [params for _, params in planned], show_progress)

    def stream(self, prompt: PromptType, sampling_params: SamplingParams | None = None) -> Iterator[News]:
        """The outputs of one prompt as they come: each News is what a step brought for one of them. Leaving the
        iteration early cancels what still runs. Raises RequestError, as it begins, as generate.
        """
        [asked] = params_for(sampling_params, 1, self.default_params)
        return self._stream(read_prompt(prompt, self.tokenizer), asked)

    def stream_chat(
        self,
        conversation: Conversation,
        sampling_params: SamplingParams | None = None,
        options: ChatOptions | None = None,
        tools: ToolsType | None = None,
    ) -> Iterator[News]:
        """As stream, for one conversation."""
        [asked] = params_for(sampling_params, 1, self.default_params)
        return self._stream(*self._read_chat(conversation, asked, options, tools))

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        dimensions: int | None = None,
        truncate_prompt_tokens: int | None = None,
        show_progress: bool = True,
    ) -> list[EmbeddingOutput]:
        """A vector for each prompt, [hidden size, or dimensions] float32, as the checkpoint or `pooler_config` says.

        dimensions: how many numbers are kept, of models that allow for it. truncate_prompt_tokens: the end of a text
        that comes to more is left out. Raises RequestError, before anything is computed, for a prompt that cannot
        be served and for a model that does not embed.
        """
        return self._reader.embed(prompts, dimensions, truncate_prompt_tokens, show_progress)

    def classify(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        truncate_prompt_tokens: int | None = None,
        show_progress: bool = True,
    ) -> list[ClassificationOutput]:
        """As embed: the likeliest label of each prompt, and how likely each is, [labels] float32, by a classifier."""
        return self._reader.classify(prompts, truncate_prompt_tokens, show_progress)

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
        show_progress: bool = True,
    ) -> list[ScoreOutput]:
        """How well each document fits the query, or its own one of as many queries, by `score_method`.

        instruction: what makes texts fit, to a chat model. Raises as embed.
        """
        pairs = pairs_of(_several(queries), _several(documents))
        return self._reader.score(pairs, instruction, truncate_prompt_tokens, show_progress)

    def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, str]],
        *,
        top_n: int | None = None,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
        max_tokens_per_doc: int | None = None,
        show_progress: bool = True,
    ) -> list[RerankOutput]:
        """The documents by how well they fit the query, best first: what POST /rerank answers, as `score` scores.

        documents: texts, or {"text": text}. top_n: how many come back; None and 0: all. max_tokens_per_doc: of each
        document so many tokens are read, from its beginning. Raises as embed.
        """
        asked = RerankOptions(top_n, instruction, truncate_prompt_tokens, max_tokens_per_doc)
        return self._reader.rerank(query, documents, asked, show_progress)

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the recent steps and requests in Chrome's trace format (Perfetto and chrome://tracing open it). Raises
        OSError where the file cannot be written.
        """
        recorder = self.client.recorder
        trace = chrome_trace(recorder.steps(), recorder.requests())
        Path(path).write_text(json.dumps(trace), encoding="utf-8")

    def close(self) -> None:
        """Stop the engine. What is still running is cancelled."""
        self.client.shutdown()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_chat(
        self,
        conversation: Conversation,
        params: SamplingParams,
        options: ChatOptions | None,
        tools: ToolsType | None,
    ) -> tuple[Prompt, SamplingParams]:
        self._reader.abilities.need(Task.GENERATE)
        use = NO_TOOLS if tools is None else tools_of(tools)
        answers = Answers(use)
        check_answers(answers, self._formats)
        if use.shown:
            options = replace(options or ChatOptions(), tools=[tool.definition for tool in use.shown])
        text = self.tokenizer.render_chat(conversation, options)
        rendered = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        planned = plan_chat(rendered, params, answers, self._formats, self.tokenizer)
        if planned.prompt != rendered:  # reasoning that the template had begun is ended
            text = self.tokenizer.decode(planned.prompt, skip_special_tokens=False)
        return Prompt(text, planned.prompt, planned.reading), planned.params

    def _job(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]) -> Job:
        vocab_size = self.resolved.config.model.vocab_size
        params = [with_bad_word_ids(one, self.tokenizer, vocab_size) for one in params]
        each(list(zip(prompts, params, strict=True)), lambda pair: self._check(*pair))
        job = Job(self.client, self.tokenizer, self._random)
        job.submit(prompts, params)
        return job

    def _check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Raise RequestError for what the engine would refuse, while it is known which prompt it is."""
        config = self.resolved.config
        check_against_vocabulary(params, config.model.vocab_size, ALL_LOGPROBS)
        check_token_ids(prompt.token_ids, config.model.vocab_size, "prompt")
        max_known_tokens(len(prompt.token_ids), params, config.scheduler.max_model_len)

    def _run(
        self, prompts: Sequence[Prompt], params: Sequence[SamplingParams], show_progress: bool
    ) -> list[RequestOutput]:
        job = self._job(prompts, params)
        try:
            _gather(job, show_progress)
        finally:
            job.cancel()
        return job.requests

    def _stream(self, prompt: Prompt, params: SamplingParams) -> Iterator[News]:
        job = self._job([prompt], [params])
        try:
            yield from job.news()
        finally:
            job.cancel()


def _several(texts: str | Sequence[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else list(texts)


def _tell(resolved: Resolved) -> None:
    for notice in notices(resolved):
        logger.warning(notice)


def _gather(job: Job, show_progress: bool) -> None:
    if not show_progress:
        for _ in job.news():
            pass
        return
    from noria.offline.bars import GenerationBar

    seen: set[str] = set()
    with GenerationBar(sum(len(request.outputs) for request in job.requests)) as progress:
        for news in job.news():
            progress.count_tokens(news.num_tokens)
            if news.output.finish_reason is not None:
                is_first = news.request.request_id not in seen
                seen.add(news.request.request_id)
                progress.finish_output(len(news.request.prompt_token_ids) if is_first else 0)
