"""How GGUF stores tensors: the types that Noria reads, and the names of those it does not."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.errors import ModelError


@dataclass(frozen=True, slots=True)
class TensorType:
    """A row of a tensor is a whole number of blocks; each holds block_elements in block_bytes."""

    name: str
    block_elements: int
    block_bytes: int


SUPPORTED = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    30: TensorType("BF16", 1, 2),
}

# Types that exist but are not read, so that an error can call them by name.
_OTHERS = {
    4: "Q4_2",
    5: "Q4_3",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
    41: "Q1_0",
}


def tensor_type(number: int, tensor: str, source: str) -> TensorType:
    """The type of that number, used by `tensor` (quoted) of the file `source`. Raises ModelError."""
    kind = SUPPORTED.get(number)
    if kind is None:
        name = _OTHERS.get(number, "unknown")
        supported = ", ".join(sorted(kind.name for kind in SUPPORTED.values()))
        raise ModelError(
            f"{source}: tensor {tensor} is of type {number} ({name}), which is not supported; "
            f"supported are {supported}"
        )
    return kind
