"""What a client is told when something goes wrong: one error, one place that knows its status codes and shapes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from noria.config.errors import EngineError, OverloadError, PluginError, Refusal, RequestError

logger = logging.getLogger("noria.server")

MAX_MESSAGE = 2000  # characters of an error message that reach a client

_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

MESSAGES_PATH = "/v1/messages"  # the Messages protocol has this route and those below it

_QUOTAS = (Refusal.KEY_REQUESTS, Refusal.KEY_TOKENS)  # the limits of one key: the others go on


class ApiError(Exception):
    """An error reply.

    message: what the client reads; never a path, an address or a traceback of the server.
    status: HTTP status. param: the field at fault, or None. headers: added to the reply.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message[:MAX_MESSAGE]
        self.status = status
        self.param = param
        self.headers = dict(headers or {})

    def response(self, scope: Scope) -> Response:
        """The reply, in the words of the protocol whose route the request names."""
        body = anthropic_error(self) if speaks_anthropic(scope) else openai_error(self)
        return Response(orjson.dumps(body), self.status, headers=self.headers, media_type="application/json")


class DeadlinePassed(ApiError):
    """504. A client that has given up by now gains nothing by trying again on its own.

    partial: what each choice had said, where a reply in one piece had begun to take shape.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, 504, headers={"x-should-retry": "false"})
        self.partial: list[str] = []


class ContextOverflow(ApiError):
    """Prompt and output do not fit into the context. num_output: how many tokens the output may at least take."""

    def __init__(self, num_prompt: int, num_output: int, max_model_len: int, param: str) -> None:
        super().__init__(
            f"This model's maximum context length is {max_model_len} tokens. However, {num_prompt + num_output} "
            f"are needed: {num_prompt} for the prompt and {num_output} for the output. Shorten the prompt or ask "
            f"for fewer tokens (context_length_exceeded)",
            param=param,
        )
        self.num_prompt = num_prompt
        self.num_output = num_output
        self.max_model_len = max_model_len


def openai_error(error: ApiError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`, and `partial` where part of an answer was made."""
    kind = _TYPES.get(error.status, "BadRequestError" if error.status < 500 else "InternalServerError")
    about = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
    return {"error": about | _partial(error)}


def anthropic_error(error: ApiError) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message}}`."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if isinstance(error, ContextOverflow):
        message = _anthropic_overflow(error)
    return {"type": "error", "error": {"type": kind, "message": message} | _partial(error)}


def _partial(error: ApiError) -> dict[str, list[str]]:
    return {"partial": error.partial} if isinstance(error, DeadlinePassed) and error.partial else {}


def speaks_anthropic(scope: Scope) -> bool:
    """Whether the request's route is one of the Messages protocol."""
    return is_anthropic_path(scope["path"].removeprefix(scope.get("root_path", "")))


def is_anthropic_path(path: str) -> bool:
    """path: as routes are named."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def _anthropic_overflow(error: ContextOverflow) -> str:
    # The words that clients of this protocol look for before they shorten a chat and try again.
    if error.num_prompt >= error.max_model_len:
        return f"prompt is too long: {error.num_prompt} tokens > {error.max_model_len} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {error.num_prompt} + {error.num_output} > "
        f"{error.max_model_len}, decrease input length or `max_tokens` and try again"
    )


def unavailable(message: str, retry_after_s: int) -> ApiError:
    """503: no fault of the request; the same one may succeed later or elsewhere."""
    return ApiError(message, 503, headers={"Retry-After": str(retry_after_s)})


def overloaded(error: OverloadError) -> ApiError:
    """429 where the limits of the client's own key refuse it, else 503; with the time to come back after."""
    status = 429 if error.reason in _QUOTAS else 503
    return ApiError(str(error), status, headers={"Retry-After": str(error.retry_after_s)})


def reader_too_slow() -> ApiError:
    """408 for a stream whose client leaves too much unread; it hardly ever gets to read that, either."""
    return ApiError("Too much of this stream was left unread.", 408)


def deadline_passed(time_s: float | None) -> DeadlinePassed:
    """504. time_s: seconds that the request had."""
    had = "time" if time_s is None else f"{time_s:g} s"
    return DeadlinePassed(
        f"The {had} for this request did not suffice; `X-Request-Timeout`, `request_timeout` and the server's own "
        "--request-timeout say how long one may take."
    )


def engine_lost() -> ApiError:
    """503 for a request under which the engine died or hung."""
    return unavailable("The engine failed while it worked on this request.", retry_after_s=5)


def model_not_found(name: str, served: Sequence[str]) -> ApiError:
    """served: the names that there are; the message shows the first few."""
    names = ", ".join(f"`{known}`" for known in served[:3])[:200]
    return ApiError(f"The model `{name[:200]}` does not exist. This server has {names}.", 404, "model")


def internal_error() -> ApiError:
    """500, telling nothing of the server's insides; the log has the rest under the X-Request-Id."""
    return ApiError("The server failed on this request; its log has details under the X-Request-Id.", 500)


def as_api_error(error: Exception) -> ApiError:
    """The reply to any exception: a user's fault is 400, overload and a dead engine 503, everything else 500.

    A RecursionError is a user's fault: nothing of the server's own is nested without bound.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestError):
        return ApiError(str(error), 400, error.param)
    if isinstance(error, OverloadError):
        return overloaded(error)
    if isinstance(error, RecursionError):
        return ApiError("The body is nested too deeply.")
    if isinstance(error, PluginError):
        logger.error("%s", error)
        return ApiError("A package installed on this server does not work; its log has details.", 500)
    if isinstance(error, EngineError):
        # The access log has a line for each such request, and what ails the engine was said once, by whoever saw it.
        logger.debug("the engine refused a request: %s", error)
        return unavailable("The engine is not able to take requests now.", retry_after_s=5)
    return internal_error()


async def answer_error(request: Request, error: Exception) -> Response:
    """Exception handler for every kind of error that `as_api_error` knows."""
    return as_api_error(error).response(request.scope)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Exception handler for what the web framework itself refuses: unknown path, wrong method."""
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if error.status_code == 404:
        path = request.scope["path"][:100]
        message = f"There is nothing at `{path}`. OpenAI clients ask under /v1, as in /v1/chat/completions."
    elif error.status_code == 405:
        message = f"The method {request.method[:20]} is not allowed here."
    return ApiError(message, error.status_code, headers=error.headers).response(request.scope)
