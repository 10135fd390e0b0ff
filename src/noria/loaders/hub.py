"""Models on the Hugging Face hub, or in its cache on this machine.

huggingface_hub reads its own settings: HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from noria.config.errors import ModelError
from noria.loaders.gguf_parts import part_names
from noria.loaders.safetensors_shards import INDEX

_ID = re.compile(r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?::(?P<file>[^:\\]+\.gguf))?")

# Everything a safetensors model needs, and nothing of what else such repositories hold. In these patterns a
# star also matches slashes; weights in folders, or named consolidated, are the same model in another form.
_WANTED = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    INDEX,
    "*.safetensors",
]
_UNWANTED = ["*/*.safetensors", "consolidated*.safetensors"]


@dataclass(frozen=True, slots=True)
class HubId:
    """repo: "org/name". file: the GGUF file in it that is meant; None means the repository's safetensors."""

    repo: str
    file: str | None = None


def parse_hub_id(text: str) -> HubId | None:
    """`org/name` or `org/name:FILE.gguf`; None where the text has neither form."""
    match = _ID.fullmatch(text)
    if match is None or ".." in text:
        return None
    return HubId(match["repo"], match["file"])


def fetch(model: HubId, revision: str | None) -> Path:
    """Download what is not in the cache yet; the directory, or the GGUF file. Raises ModelError."""
    if model.file is None:
        return Path(_snapshot(model, revision, _WANTED, _UNWANTED))
    folder, _, name = model.file.rpartition("/")
    prefix = f"{folder}/" if folder else ""
    files = [prefix + part for part in part_names(name)]
    path = Path(_snapshot(model, revision, files, [])) / model.file
    if not path.is_file():
        raise ModelError(f"{model.repo}: no file {model.file} in the repository, or in its copy used offline")
    return path


def _snapshot(model: HubId, revision: str | None, wanted: list[str], unwanted: list[str]) -> str:
    # Slow to import, and not needed for what lies on the disk.
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(
            model.repo, revision=revision, allow_patterns=wanted, ignore_patterns=unwanted
        )
    except Exception as error:  # the library lets errors of several others through
        raise ModelError(_explain(error, model, revision)) from error


def _explain(error: Exception, model: HubId, revision: str | None) -> str:
    from huggingface_hub import errors
    from huggingface_hub.constants import is_offline_mode

    at = f"{model.repo} (revision {revision})" if revision else model.repo
    if isinstance(error, errors.GatedRepoError):
        return f"{at}: access is restricted; accept its terms on the hub and set HF_TOKEN to a token of yours"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{at}: the repository has no such revision"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{at}: no such local path, and no such repository on the hub (a private one needs HF_TOKEN)"
    if isinstance(error, errors.LocalEntryNotFoundError) and is_offline_mode():
        return (
            f"{at}: no such local path, and not (completely) in the hub's cache on this machine; "
            f"HF_HUB_OFFLINE forbids downloading it"
        )
    reason = str(error).strip().split("\n")[0]
    return f"{at}: no such local path, and it could not be fetched from the hub: {reason}"
