"""`noria generate`: prompts in, outputs out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from noria.cli.loading import load, sampling_params
from noria.cli.showing import Shown
from noria.config.errors import ConfigError, RequestError
from noria.config.generating import GenerateOptions
from noria.offline.job import News
from noria.offline.llm import LLM
from noria.offline.outputs import CompletionOutput, RequestOutput
from noria.sampling.params import SamplingParams


def run(options: GenerateOptions) -> int:
    prompts = list(options.prompts.prompt) or _lines(sys.stdin)
    if not prompts:
        raise RequestError(
            "there is no prompt: give --prompt, or one prompt a line on standard input", "prompt"
        )
    if options.prompts.trace is not None:
        check_writable(options.prompts.trace)
    with load(options.engine) as llm:
        params = sampling_params(
            options.sampling, llm, n=options.prompts.n, ignore_eos=options.prompts.ignore_eos
        )
        try:
            is_lone = len(prompts) == 1 and params.n == 1 and not options.prompts.json
            failed = (_print_stream if is_lone else _print_batch)(llm, prompts, params, options)
        finally:
            if options.prompts.trace is not None:
                llm.save_trace(options.prompts.trace)
                print(f"trace: {options.prompts.trace}", file=sys.stderr)
    return 1 if failed else 0


def check_writable(path: str) -> None:
    """Raise ConfigError if the file cannot be written, before hours of work are lost to it."""
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ConfigError(f"--trace {path} cannot be written: {error.strerror}") from error


def _lines(stream: Any) -> list[str]:
    return [line.rstrip("\n") for line in stream if line.strip()]


def _print_stream(llm: LLM, prompts: Sequence[str], params: SamplingParams, options: GenerateOptions) -> bool:
    """Write the one output as it comes. Returns whether it failed."""
    error, shown = None, Shown()
    for news in _news(llm, prompts[0], params, options):
        print(shown.add(news), end="", flush=True)
        error = news.output.error
    print()
    if error is not None:
        print(f"noria generate: {error}", file=sys.stderr)
    return error is not None


def _news(llm: LLM, prompt: str, params: SamplingParams, options: GenerateOptions) -> Iterator[News]:
    if options.prompts.chat:
        return llm.stream_chat(_as_chat(prompt), params)
    return llm.stream(prompt, params)


def _print_batch(llm: LLM, prompts: Sequence[str], params: SamplingParams, options: GenerateOptions) -> bool:
    """Run all prompts as one batch. Returns whether any failed."""
    show_progress = sys.stderr.isatty()
    if options.prompts.chat:
        results = llm.chat([_as_chat(prompt) for prompt in prompts], params, show_progress=show_progress)
    else:
        results = llm.generate(prompts, params, show_progress=show_progress)
    form = _as_json if options.prompts.json else _as_text
    for prompt, result in zip(prompts, results, strict=True):
        print(form(prompt, result))
    return any(output.error is not None for result in results for output in result.outputs)


def _as_chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _as_text(prompt: str, result: RequestOutput) -> str:
    lines = [f"--- {prompt}"]
    for output in result.outputs:
        lines.append(output.text if output.error is None else f"error: {output.error}")
    return "\n".join(lines)


def _as_json(prompt: str, result: RequestOutput) -> str:
    record = {
        "prompt": prompt,
        "num_prompt_tokens": len(result.prompt_token_ids),
        "num_cached_tokens": result.num_cached_tokens,
        "outputs": [_output_as_json(output) for output in result.outputs],
    }
    return json.dumps(record, ensure_ascii=False)


def _output_as_json(output: CompletionOutput) -> dict[str, Any]:
    return {
        "text": output.text,
        **({} if output.reasoning is None else {"reasoning": output.reasoning}),
        "token_ids": output.token_ids,
        "finish_reason": output.finish_reason,
        "stop_reason": output.stop_reason,
        "error": output.error,
    }
