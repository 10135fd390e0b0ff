"""A model without weights whose logits betray every mistake in the paged KV cache.

The "KV" of a token is a 64-bit digest of the whole history up to it, as the block table showed it when the token
was computed. Logits are drawn from a digest of all the KV that the block table shows now. So a wrong token,
position, slot, block, copy or chunk boundary, a block reused too early or a prefix matched by its last block
alone each changes the logits, as it would change a real model's. `expected_logits` is the same function without
a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from noria.config.model import ModelConfig, RopeConfig
from noria.kernels.batch import Batch, Outputs
from noria.models.pooling_heads import PoolingHeads
from noria.sampling.params import SamplingParams
from noria.sampling.sampler import ReferenceSampler, RequestSampler

_WORD = 2**64 - 1
_ODD = 0x9E3779B97F4A7C15


def fake_config(
    vocab_size: int = 64, max_position: int = 4096, eos_token_ids: tuple[int, ...] = ()
) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        vocab_size=vocab_size,
        hidden_size=8,
        intermediate_size=16,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        max_position=max_position,
        norm_eps=1e-5,
        rope=RopeConfig(),
        tie_word_embeddings=True,
        eos_token_ids=eos_token_ids,
    )


class FakeModel:
    """A models.model.Model. Refuses batches that break their own contract, and reads of KV never written.

    before_forward: called with each batch before it is computed; may wait, raise, or look.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        config: ModelConfig | None = None,
        before_forward: Callable[[Batch], None] | None = None,
        heads: PoolingHeads | None = None,
    ) -> None:
        self.config = config or fake_config()
        self.sampler = ReferenceSampler()
        self.pooling_heads = heads or PoolingHeads()
        self.num_forwards = 0
        self._block_size = block_size
        self._before_forward = before_forward
        self._kv = np.zeros((num_blocks, block_size), dtype=np.uint64)
        self._is_written = np.zeros((num_blocks, block_size), dtype=bool)

    def forward(self, batch: Batch) -> Outputs:
        if self._before_forward is not None:
            self._before_forward(batch)
        _check(batch, self._kv.size)
        self.num_forwards += 1
        digests = dict(
            pair
            for sequence in range(batch.context_lens.size)
            for pair in self._sequence_digests(batch, sequence)
        )

        def drawn(rows: np.ndarray, width: int) -> np.ndarray:
            numbers = [numbers_of(digests[row], width) for row in rows.tolist()]
            return np.array(numbers, dtype=np.float32).reshape(rows.size, width)

        return Outputs(
            drawn(batch.logit_rows, self.config.vocab_size), drawn(batch.hidden_rows, self.config.hidden_size)
        )

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, destination in pairs:
            self._kv[destination] = self._kv[source]
            self._is_written[destination] = self._is_written[source]

    def _sequence_digests(self, batch: Batch, sequence: int) -> list[tuple[int, int]]:
        """(row, digest of the KV it sees) of one sequence's rows, whose KV is written on the way."""
        first, end = batch.query_starts[sequence : sequence + 2].tolist()
        start = int(batch.context_lens[sequence]) - (end - first)
        digest = self._context_digest(batch.block_tables[sequence], start)
        digests = []
        for row in range(first, end):
            position = int(batch.positions[row])
            block, offset = divmod(int(batch.slots[row]), self._block_size)
            self._kv[block, offset] = _value(digest, int(batch.token_ids[row]), position)
            self._is_written[block, offset] = True
            # read back through the table, which is how the next step will see it
            seen = self._kv[
                batch.block_tables[sequence, position // self._block_size], position % self._block_size
            ]
            digest = _joined(digest, int(seen), position)
            digests.append((row, digest))
        return digests

    def _context_digest(self, table: np.ndarray, length: int) -> int:
        positions = np.arange(length)
        where = (table[positions // self._block_size], positions % self._block_size)
        missing = np.flatnonzero(~self._is_written[where])
        assert missing.size == 0, f"KV of position {missing[:1]} of {length} was never written; {table=}"
        weights = (positions.astype(np.uint64) * np.uint64(2) + np.uint64(1)) * np.uint64(_ODD)
        return int((self._kv[where] * weights).sum(dtype=np.uint64))


def expected_logits(token_ids: Sequence[int], vocab_size: int = 64) -> np.ndarray:
    """Logits [n, vocab_size] float32 at each of token_ids, as any correct use of FakeModel gives."""
    return _expected_rows(token_ids, vocab_size)


def expected_hidden(token_ids: Sequence[int], hidden_size: int = 8) -> np.ndarray:
    """Hidden states [n, hidden_size] float32 at each of token_ids, as any correct use of FakeModel gives."""
    return _expected_rows(token_ids, hidden_size)


def _expected_rows(token_ids: Sequence[int], width: int) -> np.ndarray:
    digest = 0
    rows = []
    for position, token_id in enumerate(token_ids):
        digest = _joined(digest, _value(digest, token_id, position), position)
        rows.append(numbers_of(digest, width))
    return np.array(rows, dtype=np.float32).reshape(len(token_ids), width)


def expected_outputs(
    prompt_ids: Sequence[int],
    params: SamplingParams,
    seed: int,
    num_tokens: int,
    config: ModelConfig | None = None,
) -> list[int]:
    """The num_tokens tokens that any correct engine samples after prompt_ids; it does not stop at a stop token."""
    config = config or fake_config()
    num_prompt = len(prompt_ids)
    token_ids = list(prompt_ids)
    sampler = RequestSampler(params, seed, token_ids, num_prompt, config.eos_token_ids)
    digest = 0
    for position in range(num_prompt + num_tokens - 1):
        digest = _joined(digest, _value(digest, token_ids[position], position), position)
        if position >= num_prompt - 1:
            token_ids.append(sampler.sample(numbers_of(digest, config.vocab_size)))
            sampler.append(token_ids[-1])
    return token_ids[num_prompt:]


def numbers_of(digest: int, width: int) -> np.ndarray:
    """Logits or a hidden state [width] float32, about normal with deviation 2, drawn from a digest."""
    generator = np.random.Generator(np.random.Philox(key=digest))
    return (2 * generator.standard_normal(width)).astype(np.float32)


def _value(history: int, token_id: int, position: int) -> int:
    """The KV of a token: a digest of what came before it, itself and its place."""
    z = (history ^ (token_id + 1) * _ODD ^ (position << 40)) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _joined(digest: int, value: int, position: int) -> int:
    """The digest of a history that has grown by one token's KV."""
    return (digest + value * _weight(position)) & _WORD


def _weight(position: int) -> int:
    return (2 * position + 1) * _ODD & _WORD


def _check(batch: Batch, num_slots: int) -> None:
    arrays = {name: getattr(batch, name) for name in Batch.__dataclass_fields__}
    for name, array in arrays.items():
        assert array.dtype == np.int32 and array.flags.c_contiguous, f"{name}: {array.dtype} {array.flags}"
    num_tokens, num_sequences = batch.token_ids.size, batch.context_lens.size
    assert batch.positions.shape == batch.slots.shape == (num_tokens,)
    assert batch.block_tables.shape[0] == num_sequences
    starts = batch.query_starts
    assert starts.shape == (num_sequences + 1,) and starts[0] == 0 and starts[-1] == num_tokens
    lengths = np.diff(starts)
    assert (lengths > 0).all() and (lengths <= batch.context_lens).all()
    expected = np.concatenate([np.arange(c - n, c) for c, n in zip(batch.context_lens, lengths, strict=True)])
    assert np.array_equal(batch.positions, expected), f"{batch.positions=} {expected=}"
    assert ((batch.slots >= 0) & (batch.slots < num_slots)).all(), f"{batch.slots=} of {num_slots}"
    assert np.unique(batch.slots).size == num_tokens, f"two tokens share a slot: {batch.slots=}"
    for rows in (batch.logit_rows, batch.hidden_rows):
        assert (np.diff(rows) > 0).all(), f"{rows=} must ascend"
        assert ((rows >= 0) & (rows < num_tokens)).all(), f"{rows=} of {num_tokens}"
