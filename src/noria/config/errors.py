"""The typed errors a user can meet. Each message says what is wrong, what was found and what would work."""

from __future__ import annotations


class NoriaError(Exception):
    """Base of every error that Noria raises on purpose."""


class ConfigError(NoriaError):
    """A setting, or a combination of settings, that cannot work."""


class ModelError(NoriaError):
    """A model file that cannot be served: truncated, unknown, inconsistent or too big."""


class RequestError(NoriaError):
    """A request that is refused; nothing was computed for it.

    param: the field at fault, as the user spelt it, or None when no single field is.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class EngineError(NoriaError):
    """The engine failed or was shut down while a request was in it."""
