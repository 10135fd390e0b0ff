"""Loading streams: at its peak a process holds the packed weights and one tensor, and a tied table once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support_gguf import TinyShape, write_tiny_gguf
from support_native_child import run_child

MIB = 1 << 20
# What the interpreter, numpy and the allocator take or keep beside: a fixed amount, whatever the model's size.
SLACK = 8 * MIB
SHAPE = TinyShape(
    hidden_size=512,
    intermediate_size=2048,
    num_heads=8,
    num_kv_heads=8,
    head_dim=64,
    vocab_size=32768,
)
NUM_TABLE = 32768 * 512
# VmHWM counts pages of the file, too, which the system drops when it wants: they are subtracted.
CODE = """
from pathlib import Path
from noria.kernels.native.formats import Formats
from noria.kernels.native.sizes import matrix_sizes
from noria.kernels.ops import BackendOptions, MatrixRole
from noria.kernels.select import load_backend
from noria.loaders.resolve import open_checkpoint
from noria.models.build import build_model, cache_shape
from noria.models.stored import StoredModel

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))

checkpoint = open_checkpoint({path!r})
backend = load_backend("native")(BackendOptions("float32", "cpu", 1, cache_shape(checkpoint.config, 16, 1)))
Path("/proc/self/clear_refs").write_text("5")
before, file_before = memory("VmHWM"), memory("RssFile")
build_model(StoredModel(checkpoint), backend, 64)
peak = memory("VmHWM") - before - (memory("RssFile") - file_before)
matrices = [tensor for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2]
sizes = matrix_sizes(Formats("float32"))
print(peak, sum(sizes(t.kind, t.shape, MatrixRole.INNER) for t in matrices), max(t.num_bytes for t in matrices))
"""


@pytest.mark.parametrize("kind", ["Q4_K", "F16"])
def test_loading_takes_the_packed_weights_and_one_tensor(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_gguf(path, shape=SHAPE, kind=kind)
    peak, packed, largest = map(int, run_child(CODE.format(path=str(path))).split())
    assert packed / 2 < peak < packed + largest + SLACK, (peak / MIB, packed / MIB, largest / MIB)


def test_the_slack_is_too_small_to_hide_a_second_table() -> None:
    assert SLACK < NUM_TABLE * 18 // 32
