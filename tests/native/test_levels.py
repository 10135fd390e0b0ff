"""Instruction set levels: which a machine runs, which is chosen, and that all of them multiply to the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria import LLM, SamplingParams
from noria.config.errors import ConfigError
from noria.kernels.native import _native
from noria.kernels.native.levels import ChosenLevel, choose_level, use_level
from support_models import cached_checkpoint
from support_native_products import assert_same_bits, draw_codes, draw_rows, product

EMULATED = ["emulated_vnni", "emulated_512", "emulated_amx"]
ALL = ["avx2", "avx2_vnni", "avx512_vnni", "avx512_amx", *EMULATED]
AVX512 = ["avx512_vnni", "avx512_amx"]

# What a Sapphire Rapids answers: bits of CPUID and XGETBV by their numbers.
ANSWERS = {
    "leaf1_ecx": 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29,
    "leaf7_ebx": 1 << 5 | 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31,
    "leaf7_ecx": 1 << 11,
    "leaf7_edx": 1 << 24 | 1 << 25,
    "leaf7_1_eax": 1 << 4,
    "xcr0": 0x600E7,
    "may_use_tiles": True,
}


def levels_without(name: str, bit: int) -> list[str]:
    return _native.levels_of(**{**ANSWERS, name: ANSWERS[name] & ~(1 << bit)})


def test_a_machine_with_everything_runs_every_level() -> None:
    assert _native.levels_of(**ANSWERS) == ALL


@pytest.mark.parametrize(
    ("name", "bit", "lost"),
    [
        *[("leaf1_ecx", bit, ALL) for bit in (12, 27, 28, 29)],
        ("leaf7_ebx", 5, ALL),
        *[("leaf7_ebx", bit, AVX512) for bit in (16, 17, 30, 31)],
        ("leaf7_ecx", 11, AVX512),
        *[("leaf7_edx", bit, ["avx512_amx"]) for bit in (24, 25)],
        ("leaf7_1_eax", 4, ["avx2_vnni"]),
        *[("xcr0", bit, ALL) for bit in (1, 2)],
        *[("xcr0", bit, AVX512) for bit in (5, 6, 7)],
        *[("xcr0", bit, ["avx512_amx"]) for bit in (17, 18)],
    ],
)
def test_a_level_needs_each_of_its_instructions_and_a_system_that_saves_its_registers(
    name: str, bit: int, lost: list[str]
) -> None:
    assert levels_without(name, bit) == [level for level in ALL if level not in lost]


def test_tiles_need_the_system_s_permission() -> None:
    levels = _native.levels_of(**{**ANSWERS, "may_use_tiles": False})
    assert levels == [level for level in ALL if level != "avx512_amx"]


def test_this_machine_runs_avx2_and_what_is_emulated() -> None:
    levels = _native.levels()
    assert levels[0] == "avx2" and levels[-3:] == EMULATED


def chosen(asked: str, levels: list[str], wrong: tuple[str, ...] = ()) -> ChosenLevel:
    return choose_level(asked, levels, lambda name: name not in wrong)


def test_the_best_level_that_multiplies_right_is_chosen() -> None:
    assert chosen("auto", ALL) == ChosenLevel("avx512_amx", "the best that this CPU runs")
    assert chosen("auto", ["avx2", "avx2_vnni", "avx512_vnni", *EMULATED]).name == "avx512_vnni"
    assert chosen("auto", ["avx2", "avx2_vnni", *EMULATED]).name == "avx2_vnni"
    assert chosen("auto", ["avx2", *EMULATED]) == ChosenLevel("avx2", "the best that this CPU runs")


def test_a_level_that_multiplies_wrong_is_passed_over_and_the_user_told() -> None:
    once = chosen("auto", ALL, ("avx512_amx",))
    reason = "avx512_amx gave wrong results when tried on this CPU"
    assert once == ChosenLevel("avx512_vnni", reason, is_fallback=True)
    twice = chosen("auto", ALL, ("avx512_amx", "avx512_vnni"))
    reason = "avx512_amx and avx512_vnni gave wrong results when tried on this CPU"
    assert twice == ChosenLevel("avx2_vnni", reason, is_fallback=True)
    all_of_them = chosen("auto", ALL, ("avx512_amx", "avx512_vnni", "avx2_vnni"))
    assert (all_of_them.name, all_of_them.is_fallback) == ("avx2", True)


def test_a_level_that_is_asked_for_is_taken_untried() -> None:
    assert chosen("avx512_vnni", ALL, ("avx512_vnni",)) == ChosenLevel("avx512_vnni", "asked for")
    assert chosen("emulated_512", ["avx2", *EMULATED]) == ChosenLevel("emulated_512", "asked for")


@pytest.mark.parametrize("asked", ["avx512_vnni", "AVX2", "sse2", ""])
def test_a_level_that_is_not_to_be_had_is_refused_with_those_that_are(asked: str) -> None:
    message = f"isa is '{asked}', which is not to be had here: this machine runs avx2, avx2_vnni$"
    with pytest.raises(ConfigError, match=message):
        chosen(asked, ["avx2", "avx2_vnni", *EMULATED])


def test_the_level_that_is_asked_for_is_in_use_afterwards() -> None:
    before = _native.isa()
    assert use_level("emulated_vnni").name == _native.isa() == "emulated_vnni"
    assert use_level("auto").name == _native.isa() in _native.levels()
    _native.use_isa(before)


def test_names_that_the_library_does_not_have_are_refused() -> None:
    with pytest.raises(
        ValueError, match="no instruction set level 'mmx'; there are avx2, avx2_vnni, avx512_vnni, avx512_amx"
    ):
        _native.use_isa("mmx")


@pytest.mark.parametrize("name", _native.levels())
def test_every_level_of_this_machine_proves_itself(name: str) -> None:
    assert _native.is_proven(name)


def test_a_level_that_the_machine_lacks_is_neither_used_nor_tried() -> None:
    for name in set(ALL) - {*_native.levels(), *EMULATED}:
        for call in (_native.use_isa, _native.is_proven):
            with pytest.raises(ValueError, match=f"this machine does not run {name}"):
                call(name)


def same_at_all(weight: _native.LinearWeight, x: np.ndarray | _native.QuantisedRows, m: int) -> None:
    before = _native.isa()
    found = []
    for name in _native.levels():
        _native.use_isa(name)
        found.append(product(weight, x, m))
    _native.use_isa(before)
    for one in found[1:]:
        assert_same_bits(one, found[0])


@pytest.mark.parametrize("name", _native.levels())
def test_which_codes_take_rows_of_8_bits_is_the_same_at_every_level(name: str) -> None:
    before = _native.isa()
    _native.use_isa(name)
    rng = np.random.default_rng(0)
    taken = {bits: draw_codes(rng, (64, 32), bits, 32, 0).packed().row_bits() for bits in (4, 5, 6, 8)}
    _native.use_isa(before)
    assert taken == {4: 8, 5: 8, 6: 8, 8: 16}


@settings(max_examples=60)
@given(
    st.sampled_from([(4, 8), (4, 16), (6, 8), (6, 16), (8, 16)]),
    st.sampled_from([16, 32]),
    st.booleans(),
    st.integers(1, 60),
    st.sampled_from([32, 96, 1600]),
    st.integers(0, 2**32 - 1),
)
def test_quantised_products_have_the_same_bits_at_every_level(
    widths: tuple[int, int], group: int, has_minima: bool, m: int, k: int, seed: int
) -> None:
    bits, row_bits = widths
    rng = np.random.default_rng(seed)
    weight = draw_codes(rng, (70, k), bits, group, 0 if has_minima else 2 ** (bits - 1)).packed()
    codes, scales = draw_rows(rng, m, k, row_bits)
    x = _native.QuantisedRows.of_codes(codes, scales, bits=row_bits)
    same_at_all(weight, x, m)


@settings(max_examples=30)
@given(
    st.sampled_from(["float32", "float16", "bfloat16"]),
    st.integers(1, 30),
    st.integers(1, 60),
    st.integers(0, 2**32 - 1),
)
def test_float_products_have_the_same_bits_at_every_level(dtype: str, m: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = _native.LinearWeight.of_floats(dtype, 70, k)
    weight.put_floats(0, rng.normal(size=(70, k)).astype(np.float32))
    same_at_all(weight, rng.normal(size=(m, k)).astype(np.float32), m)


def told_of_isa(llm: LLM) -> tuple[object, str]:
    (choice,) = [choice for choice in llm.resolved.choices if choice.name == "isa"]
    return choice.value, choice.reason


def test_a_model_answers_the_same_at_every_level_and_says_which_it_runs_at() -> None:
    before = _native.isa()
    answers = []
    for name in _native.levels():
        llm = LLM(str(cached_checkpoint("llama")), max_num_seqs=2, max_model_len=64, isa=name)
        assert told_of_isa(llm) == (name, "asked for")
        sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        outputs = llm.generate(["The water", "Count"], sampling)
        answers.append([list(done.outputs[0].token_ids) for done in outputs])
    _native.use_isa(before)
    assert answers == [answers[0]] * len(answers) and len(answers[0][0]) == 8


def test_the_best_level_is_taken_where_none_is_asked_for() -> None:
    before = _native.isa()
    llm = LLM(str(cached_checkpoint("llama")), max_num_seqs=2, max_model_len=64)
    assert told_of_isa(llm) == (_native.levels()[-4], "the best that this CPU runs")
    _native.use_isa(before)


def test_a_level_that_is_not_there_stops_the_start_with_those_that_are() -> None:
    message = "isa is 'avx10', which is not to be had here: this machine runs avx2"
    with pytest.raises(ConfigError, match=message):
        LLM(str(cached_checkpoint("llama")), isa="avx10")
