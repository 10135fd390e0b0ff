"""A model that Noria does not know: see README.md."""
