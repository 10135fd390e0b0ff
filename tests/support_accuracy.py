"""The embedded model on a fixed text: what is compared by tests of accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noria.kernels.ops import BackendOptions, Matrix
from noria.kernels.select import load_backend
from noria.models.build import cache_shape
from noria.models.registry import architecture
from noria.models.rope import rope_table
from noria.models.stored import StoredModel
from support_batches import Driver

TEXT = """\
A noria is a wheel that lifts water. It stands in a river, and the river itself turns it: paddles on the rim catch \
the current, and buckets between them are filled at the bottom and emptied at the top, into a channel that leads the \
water away to gardens and fields. No animal has to walk in a circle, and nobody has to carry anything. As long as \
the river flows, the wheel goes round, by day and by night, and its slow creaking can be heard far away.

The largest of these wheels stand in the city of Hama, on the Orontes. The tallest measures about twenty metres \
across. They are made of wood, which swells in the water and keeps the joints tight, and every year some of the \
boards have to be replaced by carpenters who learned the trade from their fathers. In the middle of the nineteenth \
century more than thirty of them were at work; today seventeen remain, and most are turned for visitors only.

How much water does such a wheel lift? Suppose that it has 120 buckets, that each holds 8 litres, and that it goes \
round three times a minute. Then it lifts 120 * 8 * 3 = 2880 litres a minute, or about 173 cubic metres an hour. A \
part of it is spilled on the way, so that a careful farmer would count on two thirds of that.

Dear Miriam,

Thank you for your letter. We arrived here on Tuesday after two days on the train, and the children slept through \
most of it. The house is small but dry, and from the kitchen window we see the river and, on the other bank, the old \
mill. Yesterday I asked the neighbour whether it still works. He laughed and said that his grandmother was the last \
person to bring corn there; since then the swallows have had it to themselves. He has promised to show us the inside \
before the winter, if somebody can find the key. Anna wants to know if there are ghosts. Jonas wants to know how the \
stones are turned, and whether they could be turned by a bicycle. I said that we would find out.

Could you send us the blue coat and the two books that I left on the shelf by the stairs? There is no hurry. Give my \
love to Paul, and tell him that the apples at the market cost twice as much here as they do at home.

Questions and answers

Q: What is the difference between a water wheel and a turbine?
A: A water wheel turns slowly and uses the weight or the push of the water at its rim. A turbine turns fast, is \
surrounded by the water, and takes energy from its pressure as well as from its speed.

Q: Which of them is better?
A: For making electricity, the turbine: it is smaller for the same power and loses less. A wheel is easy to build and \
to repair, works with a small fall, and lets fish pass. Where a few kilowatts are enough, it may be the better choice.

Q: How is the power of a stream found?
A: Multiply the flow in cubic metres a second by the fall in metres and by 9.81; the result is in kilowatts. A stream \
with a flow of 0.2 cubic metres a second and a fall of 3 metres has 0.2 * 3 * 9.81 = 5.9 kilowatts, of which a good \
wheel delivers about 4.

Three things to remember: first, measure the flow in the dry season and not after rain; second, ask who owns the \
bank; third, keep the leaves out of the channel.

def lifted(buckets, litres, turns_per_minute):
    per_minute = buckets * litres * turns_per_minute
    return per_minute * 60 / 1000

print(lifted(120, 8, 3))  # 172.8
"""


@dataclass(frozen=True)
class Widened:
    """A matrix that says it is stored in float32."""

    matrix: Matrix
    kind: str = "F32"
    where: str = "widened"

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def floats(self) -> np.ndarray:
        return self.matrix.floats()

    def stored(self) -> np.ndarray:
        return self.floats().view(np.uint8)


class WidenedModel:
    """A models.parts.TensorReader of the same numbers, none quantised."""

    def __init__(self, stored: StoredModel) -> None:
        self._stored = stored

    def matrix(self, name: str) -> Widened:
        return Widened(self._stored.matrix(name))

    def vector(self, name: str) -> np.ndarray:
        return self._stored.vector(name)


class Runs:
    def __init__(self, program: Any) -> None:
        self.forward = program.run


def log_probabilities(
    reader: Any,
    stored: StoredModel,
    token_ids: list[int],
    quantization: str = "none",
    kv_dtype: str = "float32",
) -> np.ndarray:
    """[n, V] float64: of what follows each token."""
    num_blocks = -(-len(token_ids) // 16)
    shape = cache_shape(stored.config, 16, num_blocks)
    backend = load_backend("native")(BackendOptions("float32", "cpu", 2, shape, quantization, kv_dtype))
    rope = backend.packer.pack_rope(rope_table(stored.config, len(token_ids)))
    model = architecture(stored.config)(stored.config, reader, backend.packer, rope)
    driver = Driver(Runs(backend.compile(model.forward)), 16, num_blocks)
    logits = driver.run_alone(driver.add(token_ids)).astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@dataclass(frozen=True)
class Bfloat16:
    """A matrix stored in bfloat16. bits: [N, K] uint16"""

    bits: np.ndarray
    kind: str = "BF16"
    where: str = "shuffled"

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.bits.shape
        return num_rows, width

    def floats(self) -> np.ndarray:
        return (self.bits.astype(np.uint32) << 16).view(np.float32)

    def stored(self) -> np.ndarray:
        return self.bits.view(np.uint8)


class ShuffledModel:
    """A models.parts.TensorReader of a model in bfloat16 whose channels come in another order.

    The order of the channels between layers means nothing, so the model is the same but for rounding. What was
    quantised in groups once is no longer so in the new groups: to quantise it is as hard as it was before.
    """

    def __init__(self, stored: StoredModel, seed: int = 0) -> None:
        self._stored = stored
        self._config = stored.config
        rng = np.random.default_rng(seed)
        self._hidden = rng.permutation(self._config.hidden_size)
        self._inner = rng.permutation(self._config.intermediate_size)
        self._within_head = rng.permutation(self._config.head_dim)
        self._matrices: dict[str, Bfloat16] = {}

    def matrix(self, name: str) -> Bfloat16:
        if name not in self._matrices:
            rows, columns = self._orders(name)
            exact = np.ascontiguousarray(self._stored.matrix(name).floats()[:, columns])
            bits = exact[rows].view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            self._matrices[name] = Bfloat16(rounded.astype(np.uint16))
        return self._matrices[name]

    def vector(self, name: str) -> np.ndarray:
        return self._stored.vector(name)[self._hidden]

    def _orders(self, name: str) -> tuple[Any, Any]:
        """In which the rows and the columns of a matrix come."""
        config, hidden, as_is = self._config, self._hidden, slice(None)
        part = name.split(".")[2] if name.startswith("layers.") else name
        if part == "o":
            return hidden, self._heads(config.num_heads)
        if part == "down":
            return hidden, self._inner
        return {"v": self._heads(config.num_kv_heads), "gate": self._inner, "up": self._inner}.get(
            part, as_is
        ), hidden

    def _heads(self, num_heads: int) -> np.ndarray:
        starts = np.arange(num_heads)[:, None] * self._config.head_dim
        return (starts + self._within_head).reshape(-1)
