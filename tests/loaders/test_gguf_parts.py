"""GGUF models split over several files."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter

from noria.config.errors import ModelError
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.gguf_parts import part_names
from support_gguf import MINUTE_SHAPE, MINUTE_TOKENS, add_metadata, tiny_metadata, tiny_tensors


def write_part(path, metadata, tensors):
    writer = GGUFWriter(path, "llama")
    for key, value in metadata.items():
        add_metadata(writer, key, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values, raw_dtype=GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def tensors():
    return tiny_tensors("llama", MINUTE_SHAPE, len(MINUTE_TOKENS))


@pytest.fixture
def paths(tmp_path, tensors):
    """Three parts; the first one holds the metadata and no tensors, as some files do."""
    names = list(tensors)
    shares = [[], names[:5], names[5:]]
    paths = [tmp_path / name for name in part_names("tiny-00001-of-00003.gguf")]
    for number, (path, share) in enumerate(zip(paths, shares, strict=True)):
        metadata = {"split.no": number, "split.count": 3, "split.tensors.count": len(names)}
        if number == 0:
            metadata.update(tiny_metadata("llama", MINUTE_SHAPE, MINUTE_TOKENS))
        write_part(path, metadata, {name: tensors[name] for name in share})
    return paths


def refusal(path) -> str:
    with pytest.raises(ModelError) as caught:
        GgufCheckpoint(path)
    return str(caught.value)


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_all_parts_are_read_whichever_is_named(paths, tensors, opened):
    checkpoint = GgufCheckpoint(paths[opened])
    assert checkpoint.config.num_layers == 1
    assert set(checkpoint.tensors) == set(tensors)
    for name, values in tensors.items():
        assert np.array_equal(checkpoint.read(name), values)


def test_a_missing_part_is_named(paths):
    paths[2].unlink()
    assert "is one part of 3; missing beside it: tiny-00003-of-00003.gguf" in refusal(paths[0])


def test_swapped_parts_are_refused(paths):
    content = paths[1].read_bytes()
    paths[1].write_bytes(paths[2].read_bytes())
    paths[2].write_bytes(content)
    assert "says it is part 2 (split.no, from 0), but by its name it is part 1" in refusal(paths[0])


def test_a_renamed_part_is_refused(paths):
    alone = paths[0].rename(paths[0].with_name("alone.gguf"))
    assert "says the model has 3 parts (split.count), but by its name it has 1" in refusal(alone)


def test_a_tensor_in_two_parts_is_refused(paths, tensors):
    metadata = {"split.no": 2, "split.count": 3}
    write_part(paths[2], metadata, {"token_embd.weight": tensors["token_embd.weight"]})
    assert "the tensor 'token_embd.weight' is also in" in refusal(paths[0])


def test_a_tensor_in_no_part_is_noticed(paths, tensors):
    metadata = {"split.no": 2, "split.count": 3}
    write_part(paths[2], metadata, {"output_norm.weight": tensors["output_norm.weight"]})
    assert "says the model has 11 tensors (split.tensors.count), found 6" in refusal(paths[0])


def test_other_names_stand_for_themselves():
    for name in ("model.gguf", "m-00000-of-00000.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf"):
        assert part_names(name) == [name]
    assert part_names("m-00002-of-00002.gguf") == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
