"""Asks the system to run the load generator ahead of others: it needs little, but needs it at once."""

from __future__ import annotations

import os

_NICE = -10


def become_urgent() -> bool:
    """Whether the system allowed it: mostly it does so for root alone."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    except OSError:
        return False
    return True
