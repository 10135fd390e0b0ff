"""What holds for every test."""

from hypothesis import settings

import noria.kernels.torch_ops  # noqa: F401  (says how torch's threads wait, so before any test loads torch)

# How long an example takes depends on the machine and on what else it does; no test is about that.
settings.register_profile("noria", deadline=None)
settings.load_profile("noria")
