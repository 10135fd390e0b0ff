"""Noria beside its peers: one model, one seeded workload, one machine, one table of ratios."""
