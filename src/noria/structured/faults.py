"""What is wrong with a grammar."""

from __future__ import annotations


class GrammarFault(Exception):
    """A grammar that cannot be followed, and why, for its author."""
