"""Ranking over a closed set of items: see README.md."""
