"""Flags that Noria does not know: a likely meaning for a typo, a plain word for what others have."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.flags import flags_of
from noria.config.option import settings_of
from noria.config.parse import did_you_mean
from noria.config.problems import refuse

# Of `vllm serve`. Refused by name, so that nobody takes one for a typo or believes that it was obeyed.
_NAMES_IN_VLLM = """
async-scheduling code-revision compilation-config cpu-offload-gb data-parallel-size
disable-cascade-attn disable-custom-all-reduce disable-log-stats distributed-executor-backend
download-dir enable-expert-parallel enable-log-outputs enable-lora
enable-sleep-mode enable-ssl-refresh enforce-eager exclude-tools-when-tool-choice-none
hf-config-path hf-overrides hf-token kv-events-config kv-offloading-backend kv-offloading-size
kv-transfer-config limit-mm-per-prompt load-format log-config-file logits-processors lora-modules
max-cpu-loras max-lora-rank max-loras
max-parallel-loading-workers middleware model-impl performance-mode pipeline-parallel-size
prefix-caching-hash-algo response-role speculative-config ssl-cert-reqs
structured-outputs-config swap-space tensor-parallel-size tokenizer-mode
tool-server trust-remote-code watchdog-config
"""
# What these ask for is always so.
_MOOT_IN_VLLM = frozenset(("--enable-request-id-headers", "--enable-server-load-tracking"))
_FLAGS_OF_VLLM = frozenset(f"--{name}" for name in _NAMES_IN_VLLM.split()) | {"-tp", "-pp", "-dp"}


def refuse_unknown_arguments(cls: type, arguments: Sequence[str]) -> None:
    """Raise a ConfigError that explains what `parse_known_args` left over; return when that is nothing."""
    known = ["--help", "--config", *(flag for setting in settings_of(cls) for flag in flags_of(setting))]
    problems = []
    for argument in arguments:
        flag = argument.split("=", 1)[0]
        if flag in _MOOT_IN_VLLM:
            problems.append(f"{flag} asks for what Noria always does; leave it out")
        elif flag in _FLAGS_OF_VLLM or flag.replace("--no-", "--", 1) in _FLAGS_OF_VLLM:
            problems.append(f"{flag} is a flag of vLLM that this version of Noria has nothing for")
        elif flag.startswith("-") and not flag[1:2].isdigit():
            meaning = did_you_mean(flag, known) or "; --help shows those there are"
            problems.append(f"unknown flag {flag}{meaning}")
    if arguments and not problems:
        problems.append(f"unexpected argument {arguments[0]!r}")
    refuse(problems)
