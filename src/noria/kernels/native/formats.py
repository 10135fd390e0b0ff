"""In which form the native library keeps a matrix. One decision, for what is packed and for what is counted."""

from __future__ import annotations

from dataclasses import dataclass

from noria.kernels.ops import MatrixRole

QUANTISED = frozenset({"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"})
GROUP = 32  # numbers along a row that are quantised together

# Stored kinds of 16 bits and the dtype that holds them exactly.
_OWN_DTYPES = {"BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, slots=True)
class Formats:
    """dtype: float32 | bfloat16 | float16, of matrices stored in float32. quantization: none | w8 | w4."""

    dtype: str
    quantization: str = "none"

    def of(self, kind: str, width: int, role: MatrixRole) -> str:
        """A quantised type of GGUF, w8, w4, or a dtype, for a matrix [N, width] stored as `kind`.

        What the file has quantised stays as it is, and so do numbers of 16 bits: a wider form of them says nothing
        more, and another one of 16 bits says less.
        """
        if kind in QUANTISED:
            return kind
        if not self.quantises(kind, width):
            # Where most matrices are quantised, the odd one out need not be the largest.
            return _OWN_DTYPES.get(kind, self.dtype if self.quantization == "none" else "bfloat16")
        # With 4 bits there too, SmolLM2-135M strays further from its exact self (KL 0.27 for 0.21) and is an eighth
        # smaller.
        return "w8" if role is MatrixRole.VOCABULARY else self.quantization

    def quantises(self, kind: str, width: int) -> bool:
        """Whether such a matrix is rounded to fewer bits while it is packed."""
        return self.quantization != "none" and kind not in QUANTISED and width % GROUP == 0
