"""Damaged, hostile and foreign GGUF files: refused at opening, by a ModelError, whatever is wrong."""

import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import ModelError
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.gguf_cursor import Cursor
from noria.loaders.gguf_file import read_gguf
from support_gguf import MINUTE_SHAPE, MINUTE_TOKENS, write_tiny_gguf


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    metadata = {
        "test.flags": [True, False],
        "test.numbers": [1.5, 2.5],
        "test.signed": -5,
        "tokenizer.chat_template": "{{ messages }}",
    }
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS, metadata=metadata)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


def refusal(path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        GgufCheckpoint(path)
    return str(caught.value)


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(num_tensors: int, num_entries: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries)


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    layout = f"<I{len(dims)}QIQ"
    return string(name) + struct.pack(layout, len(dims), *dims, kind, offset)


def test_a_file_cut_anywhere_is_refused_as_truncated(path, whole):
    path.write_bytes(whole)
    end = max(stored.offset + stored.num_bytes for stored in read_gguf(path).tensors.values())
    for length in reversed(range(end)):
        os.truncate(path, length)
        with pytest.raises(ModelError, match=r"truncated|the file is empty"):
            GgufCheckpoint(path)
    path.write_bytes(whole[:end])
    assert GgufCheckpoint(path).config.num_layers == 1


@given(st.data())
@settings(max_examples=250, deadline=None)
def test_changed_bytes_either_load_or_are_refused(tmp_path_factory, whole, data):
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(damaged)
    try:
        checkpoint = GgufCheckpoint(path)
    except ModelError as error:
        assert str(path) in str(error)
        return
    with np.errstate(all="ignore"):
        for name, info in checkpoint.tensors.items():
            assert checkpoint.read(name).shape == info.shape


def test_changing_any_single_header_byte_either_loads_or_is_refused(path, whole):
    path.write_bytes(whole)
    end = min(stored.offset for stored in read_gguf(path).tensors.values())
    for position in range(end):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            GgufCheckpoint(path)
        except ModelError as error:
            assert str(path) in str(error)


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_after_the_magic_either_load_or_are_refused(tmp_path_factory, tail):
    path = tmp_path_factory.getbasetemp() / "noise.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<I", 3) + tail)
    with pytest.raises(ModelError):
        GgufCheckpoint(path)


def test_an_empty_file_is_refused(path):
    assert "the file is empty" in refusal(path, b"")


def test_a_missing_file_is_refused(path):
    with pytest.raises(ModelError, match=r"model\.gguf: cannot be read: No such file"):
        GgufCheckpoint(path)


def test_another_magic_is_refused(path, whole):
    assert "not a GGUF file: it starts with b'ggml'" in refusal(path, b"ggml" + whole[4:])


@pytest.mark.parametrize("version", [0, 1, 4, 1000])
def test_another_version_is_refused(path, whole, version):
    message = refusal(path, whole[:4] + struct.pack("<I", version) + whole[8:])
    assert f"GGUF version {version} is not supported; supported are 2 and 3" in message


def test_version_2_is_read_as_well(path, whole):
    path.write_bytes(whole[:4] + struct.pack("<I", 2) + whole[8:])
    assert GgufCheckpoint(path).config.num_layers == 1


@pytest.mark.parametrize("version", [2, 3])
def test_a_big_endian_file_is_refused_as_such(path, whole, version):
    message = refusal(path, whole[:4] + struct.pack(">I", version) + whole[8:])
    assert "big-endian; only little-endian ones are supported" in message


HUGE = [2**63, 2**64 - 1, 2**40, 10**9]


@pytest.mark.parametrize("count", HUGE)
def test_absurd_counts_are_refused_without_allocating(path, count):
    string_array = struct.pack("<IIQ", 9, 8, count)
    number_array = struct.pack("<IIQ", 9, 6, count)
    nested_array = struct.pack("<IIQ", 9, 9, count)
    for value in (string_array, number_array, nested_array):
        assert "truncated" in refusal(path, header(0, 1) + string("k") + value + bytes(100))
    assert "truncated" in refusal(path, header(0, 1) + struct.pack("<Q", count) + bytes(100))
    assert "truncated" in refusal(
        path, header(0, 1) + string("k") + struct.pack("<IQ", 8, count) + bytes(100)
    )
    entries = b"".join(string(f"k{index}") + struct.pack("<IB", 0, 1) for index in range(5))
    assert "truncated" in refusal(path, header(0, count) + entries)
    assert "truncated" in refusal(path, header(count, 0) + tensor("t", (1,)))


@pytest.mark.parametrize("kind", [13, 99, 2**32 - 1])
def test_unknown_value_types_are_named(path, kind):
    value = struct.pack("<I", kind)
    assert f"unknown value type {kind}" in refusal(path, header(0, 1) + string("k") + value + bytes(16))
    array = struct.pack("<IIQ", 9, kind, 1)
    assert f"unknown element type {kind}" in refusal(path, header(0, 1) + string("k") + array + bytes(16))


def test_arrays_nested_too_deep_are_refused(path):
    nest = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000
    assert "nests arrays more than 4 deep" in refusal(path, header(0, 1) + string("k") + nest)


def test_nested_arrays_are_read():
    numbers = struct.pack("<IQ", 4, 2) + struct.pack("<II", 7, 8)
    strings = struct.pack("<IQ", 8, 2) + string("a") + string("b")
    value = struct.pack("<IIQ", 9, 9, 2) + numbers + strings
    first, second = Cursor(value, "test").value("it")
    assert (first.tolist(), second) == ([7, 8], ["a", "b"])


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (0, b"\xff", 255),
        (1, b"\xff", -1),
        (2, b"\xff\xff", 65535),
        (3, b"\xff\xff", -1),
        (4, b"\xff" * 4, 2**32 - 1),
        (5, b"\xff" * 4, -1),
        (6, struct.pack("<f", 1.5), 1.5),
        (7, b"\x01", True),
        (8, string("héllo"), "héllo"),
        (10, b"\xff" * 8, 2**64 - 1),
        (11, b"\xff" * 8, -1),
        (12, struct.pack("<d", 2.5), 2.5),
    ],
)
def test_scalars_of_every_type_are_read(kind, raw, expected):
    cursor = Cursor(struct.pack("<I", kind) + raw, "test")
    value = cursor.value("it")
    assert value == expected and type(value) is type(expected)
    assert cursor.position == 4 + len(raw)


def test_a_bool_is_0_or_1(path):
    for value in (struct.pack("<IB", 7, 2), struct.pack("<IIQBB", 9, 7, 2, 1, 3)):
        assert "must be 0 or 1 (a bool)" in refusal(path, header(0, 1) + string("k") + value)


def test_text_that_is_not_utf_8_is_refused(path):
    bad = struct.pack("<Q", 2) + b"\xff\xfe"
    assert "is not valid UTF-8" in refusal(path, header(0, 1) + bad + struct.pack("<IB", 0, 1))
    assert "is not valid UTF-8" in refusal(path, header(0, 1) + string("k") + struct.pack("<I", 8) + bad)
    array = struct.pack("<IIQ", 9, 8, 2) + string("fine") + bad
    assert "'k' is not valid UTF-8" in refusal(path, header(0, 1) + string("k") + array)


def test_a_metadata_key_or_a_tensor_that_appears_twice_is_refused(path):
    entry = string("k") + struct.pack("<IB", 0, 1)
    assert "the metadata key 'k' appears twice" in refusal(path, header(0, 2) + entry * 2)
    described = tensor("t", (4,)) + tensor("t", (4,), offset=32)
    assert "the tensor 't' appears twice" in refusal(path, header(2, 0) + described + bytes(200))


@pytest.mark.parametrize(
    ("number", "name"),
    [(20, "IQ4_NL"), (10, "Q2_K"), (39, "MXFP4"), (4, "Q4_2"), (28, "F64"), (200, "unknown")],
)
def test_unsupported_tensor_types_are_named(path, number, name):
    message = refusal(path, header(1, 0) + tensor("t", (256,), number) + bytes(500))
    assert (
        f"tensor 't' is of type {number} ({name}), which is not supported; supported are BF16, F16" in message
    )


@pytest.mark.parametrize(
    ("described", "words"),
    [
        (tensor("t", ()), "must have 1 to 4 dimensions, found 0"),
        (tensor("t", (1, 1, 1, 1, 1)), "must have 1 to 4 dimensions, found 5"),
        (tensor("t", (4, 0)), "is empty: its shape is [0, 4]"),
        (tensor("t", (33,), 8), "rows of 33 elements, which Q8_0 cannot hold"),
        (tensor("t", (128, 2), 12), "rows of 128 elements, which Q4_K cannot hold"),
        (tensor("t", (4,), offset=4), "misaligned: its offset 4 is no multiple of 32"),
        (tensor("t", (2**60, 2**60)), "truncated: tensor 't' ends at"),
        (tensor("t", (4,), offset=2**63), "truncated: tensor 't' ends at"),
    ],
)
def test_tensors_that_cannot_be_where_they_are_said_to_be_are_refused(path, described, words):
    assert words in refusal(path, header(1, 0) + described + bytes(300))


def test_overlapping_tensors_are_refused(path):
    described = tensor("a", (9,)) + tensor("b", (4,), offset=32)
    assert "tensors 'a' and 'b' overlap" in refusal(path, header(2, 0) + described + bytes(300))


@pytest.mark.parametrize("alignment", [0, 3, 48])
def test_an_alignment_is_a_power_of_two(path, alignment):
    entry = string("general.alignment") + struct.pack("<II", 4, alignment)
    assert "general.alignment must be" in refusal(path, header(0, 1) + entry)


def test_a_stated_alignment_is_used(tmp_path):
    path = tmp_path / "model.gguf"
    head = header(1, 1) + string("general.alignment") + struct.pack("<II", 4, 128) + tensor("t", (2,))
    path.write_bytes(head.ljust(128, b"\0") + struct.pack("<2f", 1.0, 2.0))
    assert read_gguf(path).tensors["t"].offset == 128
