"""The typed errors a user can meet. Each message says what is wrong, what was found and what would work."""

from __future__ import annotations

from enum import Enum


class NoriaError(Exception):
    """Base of every error that Noria raises on purpose."""


class ConfigError(NoriaError):
    """A setting, or a combination of settings, that cannot work."""


class ModelError(NoriaError):
    """A model file that cannot be served: truncated, unknown, inconsistent or too big."""


class PluginError(NoriaError):
    """A package that adds to Noria and does not work. The message names the package and its entry point."""


class RequestError(NoriaError):
    """A request that is refused; nothing was computed for it.

    param: the field at fault, as the user spelt it, or None when no single field is.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class EngineError(NoriaError):
    """The engine failed or was shut down while a request was in it."""


class Refusal(str, Enum):
    """Why a request was not taken that could be served at another time."""

    QUEUED_REQUESTS = "queued_requests"  # the queue holds as many requests as it may
    QUEUED_TOKENS = "queued_tokens"  # the queue holds as many prompt tokens as it may
    DEADLINE = "deadline"  # its time would be over before its turn came
    KEY_REQUESTS = "key_requests"  # its API key has as many requests inside as it may
    KEY_TOKENS = "key_tokens"  # its API key has spent its tokens


class OverloadError(NoriaError):
    """A request that is refused for now; nothing was computed for it.

    retry_after_s: whole seconds after which it may be taken.
    """

    def __init__(self, message: str, reason: Refusal, retry_after_s: int) -> None:
        super().__init__(message)
        self.reason = Refusal(reason)
        self.retry_after_s = retry_after_s
