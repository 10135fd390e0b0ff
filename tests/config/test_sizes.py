"""Sizes and lengths as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.sizes import flag_size, flag_size_below, format_size, parse_count, parse_size


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("1.5k", 1500),
        ("0.5K", 512),
        (" 2 m ", 2_000_000),
        ("1G", 2**30),
    ],
)
def test_counts_take_a_decimal_or_binary_suffix(text: str, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1073741824", 2**30),
        ("512MiB", 512 * 2**20),
        ("512mib", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("1.5 GiB", 3 * 2**29),
        ("7B", 7),
        ("2k", 2000),
        ("2K", 2048),
        ("1.1KiB", 1126),
        ("1TB", 10**12),
    ],
)
def test_sizes_take_a_decimal_or_binary_suffix(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    "text", ["", "k", "8 kk", "-1", "1e3", "8q", "1.2.3", "0x10", "1,000", "nan", "8kB", "1.5"]
)
def test_what_is_no_whole_number_is_no_count(text: str) -> None:
    with pytest.raises(ValueError):
        parse_count(text)


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1 MBit", "1e9", "inf", "1.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (90 * 2**20 + 2**19, "90.5 MiB"),
        (270 * 2**20 + 2**18, "270 MiB"),
        (1000 * 2**20, "0.98 GiB"),
        (1500 * 2**20, "1.46 GiB"),
        (5 * 2**40, "5 TiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_sizes_are_shown_in_the_unit_that_suits_them(num_bytes: int, text: str) -> None:
    assert format_size(num_bytes) == text


@given(st.integers(1024, 2**49))
def test_a_shown_size_has_three_right_digits(num_bytes: int) -> None:
    text = format_size(num_bytes)
    assert abs(parse_size(text) - num_bytes) <= 0.0052 * num_bytes + 1
    assert len(text.split()[0].replace(".", "").lstrip("0")) <= 3


@given(st.integers(1, 2**50))
def test_a_size_for_a_flag_is_just_enough(num_bytes: int) -> None:
    size = parse_size(flag_size(num_bytes))
    assert num_bytes <= size < num_bytes + 2**20


@given(st.integers(0, 2**50))
def test_a_size_below_for_a_flag_is_just_within(num_bytes: int) -> None:
    size = parse_size(flag_size_below(num_bytes))
    assert num_bytes - 2**20 < size <= num_bytes
