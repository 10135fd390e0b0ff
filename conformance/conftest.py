"""What holds for every check here."""

import noria.kernels.torch_ops  # noqa: F401  (says how torch's threads wait, so before any test loads torch)
