"""What becomes of threads where their process is forked or ends under them, or where others set them otherwise."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from noria.kernels.native import _native
from support_native_child import run_child

# A plan that is used again and again: an embedding and its logits, over a batch of T tokens of one sequence.
PLAN = """
import os, sys, threading, time
import numpy as np
from noria.kernels.batch import Batch
from noria.kernels.native import _native

pool = _native.Pool(2)
plan = _native.Plan(pool, _native.KvCache(_native.CacheShape(1, 1, 8, 8, 1), "float32"))
weight = _native.LinearWeight.of_floats("float32", 8, 32)
weight.put_floats(0, np.ones((8, 32), np.float32))
plan.lm_head(plan.embed(weight), _native.Norm(np.ones(32, np.float32), 1e-5), weight)
zeros = np.zeros(8, np.int32)
batch = Batch(zeros, zeros, np.arange(8, dtype=np.int32), zeros, np.array([0, 8], np.int32), zeros[:1] + 8,
              np.zeros((1, 1), np.int32), zeros[:1], zeros[:0])
logits, hidden = np.zeros((1, 8), np.float32), np.zeros((0, 0), np.float32)
plan.run(batch, logits, hidden)
"""


def test_a_process_that_is_forked_is_told_that_it_has_no_threads_and_ends_in_peace() -> None:
    code = (
        PLAN
        + """
class Params:
    temperature, top_k, top_p, min_p, min_tokens, logit_bias = 0.0, 0, 1.0, 0.0, 0, {}
    repetition_penalty, presence_penalty, frequency_penalty = 1.0, 0.0, 0.0

sampler = _native.Sampler(pool)
request = _native.SampledRequest(Params(), 0, zeros, 8, [])
none, one = np.zeros((0, 0), np.uint32), zeros[:1]
def sample():
    sampler.sample(logits, one, [request], none, one - 1, np.zeros((1, 3), np.int32))
def logprobs():
    sampler.logprobs(logits, np.zeros((1, 3), np.int32), np.zeros((1, 4), np.int32), np.zeros((1, 0), np.int32),
                     np.zeros((1, 1)))
calls = [
    lambda: plan.run(batch, logits, hidden),
    lambda: plan.watch(batch, logits, hidden, print),
    lambda: weight.put_stored(pool, 0, "F32", np.ones((8, 128), np.uint8)),
    lambda: plan.op_times,
    sample,
    logprobs,
]
sample(), logprobs()
sys.stdout.flush()
child = os.fork()
if child == 0:
    for call in calls:
        try:
            call()
            print("ran")
        except RuntimeError as error:
            assert f"process {os.getppid()} started these threads" in str(error), error
            assert f"process {os.getpid()}, forked from it, has none of them" in str(error), error
            print("refused")
    sys.exit(3)  # through everything that an interpreter does at its end
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
plan.run(batch, logits, hidden)
print("ran on")
"""
    )
    assert run_child(code).splitlines() == [*["refused"] * 6, "3", "ran on"]


def test_a_forked_process_may_have_threads_of_its_own_before_it_lets_go_of_the_pool() -> None:
    code = """
import os, sys, threading
from noria.kernels.native import _native

pool = _native.Pool(16)
child = os.fork()
if child == 0:
    for _ in range(40):
        several = [threading.Thread(target=lambda: None) for _ in range(20)]
        for thread in several: thread.start()
        for thread in several: thread.join()
    pool = _native.Pool(16)  # in the place of the other one
    pool = None
    sys.exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run_child(code).splitlines() == ["3"]


def test_an_interpreter_that_ends_in_the_middle_of_steps_ends_in_peace() -> None:
    code = (
        PLAN
        + """
def steps():
    while True:
        plan.run(batch, logits, hidden)

class AtTheEnd:
    # Called when the interpreter has begun to end: threads come back to it meanwhile, out of their steps.
    def __del__(self, sleep=time.sleep):
        sleep(0.2)

keep = AtTheEnd()
for _ in range(3):
    threading.Thread(target=steps, daemon=True).start()
seen = plan.num_ops_run
while plan.num_ops_run < seen + 100:
    time.sleep(0.001)
print("over")
"""
    )
    assert run_child(code) == "over\n"


def test_a_pool_can_be_made_while_others_end() -> None:
    code = """
import threading
from noria.kernels.native import _native

def make():
    for count in range(1, 40):
        assert _native.Pool(count % 5 + 1).num_threads == count % 5 + 1

threads = [threading.Thread(target=make) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("made")
"""
    assert run_child(code) == "made\n"


@pytest.mark.parametrize("num_threads", [1, 2])
def test_how_a_thread_is_set_to_round_changes_no_result(num_threads: int) -> None:
    """Libraries built for speed set a thread, and all that it starts, to round elsewhere or to flush small numbers."""
    rng = np.random.default_rng(0)
    weight = _native.LinearWeight.of_floats("float32", 128, 48)
    weight.put_floats(0, rng.normal(size=(128, 48)).astype(np.float32))
    rows = rng.normal(size=(5, 48)).astype(np.float32)
    sampler = _native.Sampler(_native.Pool(num_threads))
    logits = rng.normal(size=(2, 300)).astype(np.float32)

    def results() -> list[np.ndarray]:
        product = np.zeros((5, 128), np.float32)
        _native.multiply(
            weight, rows, product, add=False, begin=0, end=weight.num_panels, num_threads=num_threads
        )
        asked = np.array([[0, 7, 3], [1, 9, 3]], np.int32)
        logprobs, ids = np.zeros((2, 4)), np.zeros((2, 3), np.int32)
        for count in (1, 2):
            outcomes = np.zeros((count, 4), np.int32)
            sampler.logprobs(logits, asked[:count], outcomes, ids[:count], logprobs[:count])
        return [product, logprobs, ids]

    expected, upwards = results(), 0x800
    library = ctypes.CDLL("libm.so.6")
    library.fesetround(upwards)
    try:
        found = results()
        assert library.fegetround() == upwards  # as it was found
    finally:
        library.fesetround(0)
    for ours, plain in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, plain)
