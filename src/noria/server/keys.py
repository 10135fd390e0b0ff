"""Who may use the server: API keys and their holders."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Sequence

from noria.config.errors import ConfigError
from noria.config.keys_file import HeldKey, read_keys_file
from noria.config.tenant import Tenant

logger = logging.getLogger("noria.server")


class KeyRing:
    """Knows the digests of keys, not the keys. Those of a file follow the file; a bad one changes nothing.

    stated: keys given one by one; their holders are called key-1, key-2 and so on. path: a file of more, looked
    at every look_every_s seconds.
    Raises ConfigError for a file that is bad at start.
    """

    def __init__(self, stated: Sequence[str], path: str | None, look_every_s: float = 1.0) -> None:
        self._stated = [(_digest(key.encode()), Tenant(f"key-{i}")) for i, key in enumerate(stated, 1)]
        self._path = path
        self._look_every_s = look_every_s
        self._stamp = _stamp(path)
        self._known = self._with(() if path is None else read_keys_file(path))

    @property
    def is_empty(self) -> bool:
        return not self._known

    def holder(self, key: bytes) -> Tenant | None:
        """Whose key it is; None for an unknown one. Takes the same time whatever is sent."""
        # Digests have one length, and all are compared, whichever fits.
        digest = _digest(key)
        holder = None
        for known, tenant in self._known:
            if hmac.compare_digest(digest, known):
                holder = tenant
        return holder if key else None

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        stamp = _stamp(self._path)
        if self._path is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._known = self._with(read_keys_file(self._path))
        except ConfigError as error:
            logger.error("the API keys stay as they were: %s", error)
        else:
            logger.info("read %d API keys anew", len(self._known))

    async def follow(self) -> None:
        """Keep up with the file for ever."""
        while self._path is not None:
            await asyncio.sleep(self._look_every_s)
            self.refresh()

    def _with(self, held: Sequence[HeldKey]) -> list[tuple[bytes, Tenant]]:
        # Limits and cached prefixes go by the name: two holders must not have the same.
        taken = {tenant.name for _, tenant in self._stated} & {one.tenant.name for one in held}
        if taken:
            raise ConfigError(
                f"the keys file {self._path} has the name {min(taken)!r}, which is that of a key given with --api-key; "
                "use another"
            )
        return [*self._stated, *((_digest(one.key.encode()), one.tenant) for one in held)]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    """What changes with a file's content; None without a file."""
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
