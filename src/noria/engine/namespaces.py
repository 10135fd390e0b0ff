"""Who shares cached prefixes with whom: the key that stands before a request's tokens in the prefix cache."""

from __future__ import annotations

from collections.abc import Callable

from noria.config.engine import EngineConfig, PrefixIsolation
from noria.core.prefix import Namespace
from noria.engine.messages import EngineRequest

NamespaceOf = Callable[[EngineRequest], Namespace]


def namespaces(config: EngineConfig) -> NamespaceOf:
    """As the operator decided. What a request says itself (its salt) can only part it from others."""
    identity = config.kv_identity
    if config.cache.prefix_isolation is PrefixIsolation.KEY:
        return lambda request: Namespace(identity, salt=request.cache_salt, tenant=request.tenant.name)
    return lambda request: Namespace(identity, salt=request.cache_salt)
