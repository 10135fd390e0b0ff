"""Files that change under their reader, and headers and tensors that are read piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import ModelError
from noria.engine.fingerprint import model_identity
from noria.engine.opening import OpenedModel
from noria.loaders import gguf_file, tensor_reading
from noria.loaders.checkpoint import Checkpoint
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.model_bytes import ModelBytes
from noria.loaders.safetensors_checkpoint import SafetensorsCheckpoint
from noria.models import stored
from noria.models.stored import StoredModel
from support_gguf import MINUTE_SHAPE, MINUTE_TOKENS, TinyShape, write_tiny_gguf
from support_safetensors import tiny_tensors, write_tiny_directory

READS: dict[str, Callable[[Checkpoint, str], object]] = {
    "floats": lambda checkpoint, name: checkpoint.read(name),
    "bytes": lambda checkpoint, name: checkpoint.read_raw(name),
    "a part": lambda checkpoint, name: checkpoint.read_raw(name, 0, 1),
    "identity": lambda checkpoint, name: model_identity(
        OpenedModel("m", checkpoint, checkpoint.tokenizer, {})
    ),
    "fingerprint": lambda checkpoint, name: StoredModel(checkpoint).fingerprint(),
    "a matrix": lambda checkpoint, name: list(StoredModel(checkpoint).matrices()[0].pieces()),
}


def write_gguf(folder: Path) -> tuple[Path, Checkpoint]:
    path = folder / "model.gguf"
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS)
    return path, GgufCheckpoint(path)


def write_safetensors(folder: Path) -> tuple[Path, Checkpoint]:
    write_tiny_directory(folder)
    return folder / "model.safetensors", SafetensorsCheckpoint(folder)


WRITERS = {"gguf": write_gguf, "safetensors": write_safetensors}
# What is written in safetensors is no whole model.
CELLS = [("gguf", what) for what in READS] + [("safetensors", what) for what in list(READS)[:4]]


@pytest.mark.parametrize(("file_format", "what"), CELLS)
def test_a_file_that_is_shortened_once_it_is_open_is_told_and_ends_nothing(
    file_format: str, what: str, tmp_path: Path
) -> None:
    path, checkpoint = WRITERS[file_format](tmp_path)
    size = path.stat().st_size
    for name in checkpoint.tensors:
        READS[what](checkpoint, name)
    for length in (size - 1, size // 2, 1, 0):
        os.truncate(path, length)
        message = (
            rf"{path}: changed while it was read: it had {size} bytes when it was opened and has {length} now"
        )
        for name in checkpoint.tensors:
            with pytest.raises(ModelError, match=message):
                READS[what](checkpoint, name)


@pytest.mark.parametrize("file_format", WRITERS)
def test_a_file_whose_contents_are_replaced_once_it_is_open_is_not_read_on(
    file_format: str, tmp_path: Path
) -> None:
    path, checkpoint = WRITERS[file_format](tmp_path)
    name = next(iter(checkpoint.tensors))
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    later = path.stat().st_mtime_ns + 10**9  # however coarse the file system's times are
    os.utime(path, ns=(later, later))
    with pytest.raises(ModelError, match="start again when nothing writes to it"):
        checkpoint.read(name)


@pytest.mark.parametrize("file_format", WRITERS)
def test_a_file_that_another_takes_the_place_of_is_read_on_as_it_was(
    file_format: str, tmp_path: Path
) -> None:
    path, checkpoint = WRITERS[file_format](tmp_path)
    before = {name: checkpoint.read(name) for name in checkpoint.tensors}
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", path)
    for name, array in before.items():
        np.testing.assert_array_equal(checkpoint.read(name), array)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: Is a directory"):
        ModelBytes(tmp_path)


def test_a_file_is_let_go_with_the_last_who_reads_it(tmp_path: Path) -> None:
    path, checkpoint = write_gguf(tmp_path)

    def open_files() -> list[str]:
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return [link for link in links if os.path.exists(link) and os.path.samefile(link, path)]

    assert len(open_files()) == 1
    checkpoint.close()
    assert open_files() == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS)
    return path


@given(st.integers(1, 4000))
@settings(max_examples=200, deadline=None)
def test_a_header_longer_than_what_is_read_at_first_is_read_whole(whole: Path, num_bytes: int) -> None:
    expected = gguf_file.read_gguf(whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf_file, "_FIRST_BYTES", num_bytes)
        found = gguf_file.read_gguf(whole)
    assert found.tensors == expected.tensors
    assert repr(found.metadata) == repr(expected.metadata)


@given(st.integers(1, 200), st.data())
@settings(max_examples=100, deadline=None)
def test_a_header_that_is_cut_is_truncated_however_much_is_read_at_first(
    whole: Path, num_bytes: int, data: Any
) -> None:
    content = whole.read_bytes()
    end = min(tensor.offset for tensor in gguf_file.read_gguf(whole).tensors.values())
    path = whole.with_name("cut.gguf")
    path.write_bytes(content[: data.draw(st.integers(1, end))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf_file, "_FIRST_BYTES", num_bytes)
        with pytest.raises(ModelError, match="truncated"):
            gguf_file.read_gguf(path)


@pytest.mark.parametrize("piece_bytes", [1, 300, 5000])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K"])
def test_tensors_are_the_same_however_small_the_pieces_are(
    kind: str, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    shape = TinyShape(hidden_size=256, intermediate_size=256, num_heads=4, head_dim=64)
    values = write_tiny_gguf(path, kind=kind, shape=shape)
    monkeypatch.setattr(tensor_reading, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(stored, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(stored, "_LEAST_ROWS", 1)
    monkeypatch.setattr(stored, "_TILE_ROWS", 1)
    checkpoint = GgufCheckpoint(path)
    model = StoredModel(checkpoint)
    for name in ("token_embd.weight", "blk.1.attn_v.weight", "blk.0.ffn_norm.weight"):
        np.testing.assert_array_equal(checkpoint.read(name), values[name])
    matrix = model.matrix("embedding")
    pieces = list(matrix.pieces())
    assert len(pieces) == -(-matrix.shape[0] // max(1, piece_bytes // pieces[0].shape[1]))
    assert np.concatenate(pieces).tobytes() == checkpoint.read_raw("token_embd.weight").tobytes()


def test_whole_numbers_in_the_place_of_weights_are_refused_before_they_are_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    write_tiny_directory(tmp_path)
    tensors = tiny_tensors()
    embedding = tensors["model.embed_tokens.weight"]
    save_file({**tensors, "lm_head.weight": embedding.astype(np.int64)}, tmp_path / "model.safetensors")
    checkpoint = SafetensorsCheckpoint(tmp_path)
    for read in (lambda: checkpoint.read("lm_head.weight"), lambda: StoredModel(checkpoint)):
        with pytest.raises(ModelError, match=r"tensor lm_head.weight holds whole numbers \(I64\)"):
            read()
