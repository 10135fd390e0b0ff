"""Doing work only as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

ABORT = "noria.abort"  # an extension in a request's scope: {"abort": what cuts its connection}

Result = TypeVar("Result")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`. Cancels it and raises ClientDisconnect as soon as the client goes away.

    receive: of a request whose body has been read.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def cut(scope: Scope) -> None:
    """Cut a request's connection, with what waits to be sent on it.

    A connection that is closed stays for as long as its client does not read what waits.
    """
    extension = scope.get("extensions", {}).get(ABORT)
    if extension is not None:
        extension["abort"]()
