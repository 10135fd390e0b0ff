"""What a user may ask of `noria inspect`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.asked import MemoryOptions, ModelOptions
from noria.config.option import REAL, SWITCH, check_values, option


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    TITLE: ClassVar[str] = "What to look at"

    compare: bool = option(
        False,
        "Run the prompt on the native and on the reference backend, and show after which op they first differ.",
        SWITCH,
    )
    against: str | None = option(
        None,
        "Compare with a torch module instead, whose submodules are named as the checkpoint's tensors are: "
        "PACKAGE.MODULE:FUNCTION, called with the model's folder, returns it. The ops run on --backend. For example "
        "transformers:AutoModelForCausalLM.from_pretrained.",
        default_words="no module",
    )
    prompt: str = option("The water wheel turns, and its buckets fill.", "Text to compare on.")
    tolerance: float = option(
        0.1,
        "From which relative difference (root mean square, of the reference's) two outputs of an op count as "
        "different. Activations that are rounded to 8 bits, as before quantised weights, differ by some hundredths.",
        REAL,
        low=0,
    )
    json: bool = option(False, "Print one JSON object instead of tables.", SWITCH)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """Everything asked of `noria inspect`."""

    look: ComparisonOptions = field(default_factory=ComparisonOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
