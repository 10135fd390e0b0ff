"""Decoding rules: see README.md."""
