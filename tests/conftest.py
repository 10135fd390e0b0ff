"""What holds for every test."""

import noria.kernels.torch_ops  # noqa: F401  (says how torch's threads wait, so before any test loads torch)
import support_examples  # noqa: F401  (what Hypothesis tries)
