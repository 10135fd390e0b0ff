"""Flags that Noria does not know: a likely meaning for a typo, a plain word for what others have."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.flags import flags_of
from noria.config.option import settings_of
from noria.config.parse import did_you_mean
from noria.config.problems import refuse

# Of `vllm serve`. Refused by name, so that nobody takes one for a typo or believes that it was obeyed.
_NAMES_IN_VLLM = """
allowed-origins async-scheduling chat-template-content-format code-revision cpu-offload-gb
data-parallel-size default-chat-template-kwargs disable-log-stats disable-uvicorn-access-log
distributed-executor-backend download-dir enable-auto-tool-choice enable-expert-parallel
enable-force-include-usage enable-log-requests enable-lora enable-request-id-headers
enable-server-load-tracking enable-sleep-mode enable-tokenizer-info-endpoint enforce-eager hf-token
kv-events-config kv-offloading-backend kv-offloading-size kv-transfer-config
limit-mm-per-prompt load-format logits-processors lora-modules max-cpu-loras max-lora-rank max-loras
middleware model-impl override-generation-config
pipeline-parallel-size prefix-caching-hash-algo reasoning-parser
return-tokens-as-token-ids root-path runner speculative-config ssl-ca-certs ssl-certfile ssl-keyfile
stream-interval structured-outputs-config swap-space tensor-parallel-size tokenizer-mode
tool-call-parser tool-parser-plugin trust-remote-code trust-request-chat-template uds
"""
_FLAGS_OF_VLLM = frozenset(f"--{name}" for name in _NAMES_IN_VLLM.split()) | {"-tp", "-pp", "-dp"}


def refuse_unknown_arguments(cls: type, arguments: Sequence[str]) -> None:
    """Raise a ConfigError that explains what `parse_known_args` left over; return when that is nothing."""
    known = [flag for setting in settings_of(cls) for flag in flags_of(setting)]
    problems = []
    for argument in arguments:
        flag = argument.split("=", 1)[0]
        if flag in _FLAGS_OF_VLLM or flag.replace("--no-", "--", 1) in _FLAGS_OF_VLLM:
            problems.append(f"{flag} is a flag of vLLM that this version of Noria has nothing for")
        elif flag.startswith("-") and not flag[1:2].isdigit():
            problems.append(f"unknown flag {flag}{did_you_mean(flag, known)}")
    if arguments and not problems:
        problems.append(f"unexpected argument {arguments[0]!r}")
    refuse(problems)
