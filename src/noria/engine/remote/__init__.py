"""An engine in a process of its own, and its clients in others: see `wire` for what crosses."""
