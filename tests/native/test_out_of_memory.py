"""Memory and threads that the system refuses: an exception that says how much was asked for, and life goes on.

Sanitizers map more memory than these limits allow, so `make sanitize` leaves this file out.
"""

from __future__ import annotations

from support_native_child import run_child


def test_memory_that_cannot_be_had_is_a_memory_error_that_says_how_much() -> None:
    code = """
import resource
import numpy as np
from noria.kernels.native import _native

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
def refusal(call):
    try:
        call()
    except MemoryError as error:
        print(error)
refusal(lambda: _native.LinearWeight.of_floats("float32", 1 << 16, 1 << 14))
refusal(lambda: _native.KvCache(_native.CacheShape(8, 8, 64, 16, 1 << 16), "bfloat16"))
weight = _native.LinearWeight.of_floats("bfloat16", 1 << 19, 1 << 10)
refusal(lambda: weight.read(0, 1 << 19))
print(_native.LinearWeight.of_floats("float32", 4, 4).read(0, 1).tolist())
"""
    lines = run_child(code).splitlines()
    room_for_keys = 8 * 64 * 2  # of a group, behind the last block
    wanted = [4 << 30, (2 * 8 * 8 * 64 * 16 * 2 << 16) + room_for_keys, 4 << 29]
    assert lines == [*(f"{size} bytes of memory cannot be had" for size in wanted), "[[0.0, 0.0, 0.0, 0.0]]"]


def test_a_step_whose_memory_cannot_be_had_is_refused_and_a_smaller_one_then_runs() -> None:
    code = """
import resource
import numpy as np
from noria.kernels.batch import Batch
from noria.kernels.native import _native

plan = _native.Plan(_native.Pool(1), _native.KvCache(_native.CacheShape(1, 1, 8, 8, 1), "float32"))
x = plan.embed(_native.LinearWeight.of_floats("float32", 8, 1 << 12))
plan.lm_head(x, _native.Norm(np.ones(1 << 12, np.float32), 1e-5), _native.LinearWeight.of_floats("float32", 1, 1 << 12))
def run(count):
    zeros = np.zeros(count, np.int32)
    plan.run(Batch(zeros, zeros, zeros, zeros, np.array([0, count], np.int32), np.array([count], np.int32),
                   np.zeros((1, count // 8 + 1), np.int32), zeros[:1], zeros[:0]),
             np.zeros((1, 1), np.float32), np.zeros((0, 0), np.float32))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    run(1 << 20)
except MemoryError as error:
    print(error)
run(4)
print("ran")
"""
    assert run_child(code).splitlines() == [f"{4 << 32} bytes of memory cannot be had", "ran"]


def test_threads_that_do_not_start_are_an_error_with_their_number() -> None:
    code = """
import resource
from noria.kernels.native import _native

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    _native.Pool(1024)
except RuntimeError as error:
    print(error)
print(_native.Pool(2).num_threads)
"""
    refusal, after = run_child(code).splitlines()
    assert refusal.startswith("the system starts no more than ")
    assert refusal.endswith(" of 1024 threads; ask for fewer")
    assert after == "2"


def test_a_step_refused_for_want_of_memory_anywhere_leaves_nothing_that_the_next_one_stumbles_over() -> None:
    """Each attempt has a little more memory than the one before, the last all that it needs."""
    code = """
import resource
import numpy as np
from noria.kernels.batch import Batch
from noria.kernels.native import _native

HEADS = 8
rng = np.random.default_rng(0)
def weight(n, k):
    made = _native.LinearWeight.of_floats("float32", n, k)
    made.put_floats(0, rng.normal(size=(n, k)).astype(np.float32))
    return made

table, qkv, down, head = weight(8, 8), weight(3 * HEADS * 8, 8), weight(8, HEADS * 8), weight(4, 8)
norm, rope = _native.Norm(np.ones(8, np.float32), 1e-5), np.ones((8, 8), np.float32)
heads, pool = _native.Heads(HEADS, HEADS, 8), _native.Pool(2)

def plan_of():
    plan = _native.Plan(pool, _native.KvCache(_native.CacheShape(1, HEADS, 8, 8, 1), "float32"))
    x = plan.embed(table)
    q = plan.norm_qkv(x, norm, _native.Qkv([qkv], heads, rope, None, None), 0)
    plan.linear_add(plan.attend(q, heads, 0.3, _native.Reach(_native.Reach.ALL, 0), 0), down, x)
    plan.lm_head(x, norm, head)
    return plan

def arrays(count):
    # Sequences of one token each: as much to note down for attention as can be.
    zeros, ones = np.zeros(count, np.int32), np.ones(count, np.int32)
    batch = Batch(zeros, zeros, zeros, zeros, np.arange(count + 1, dtype=np.int32), ones, zeros[:, None].copy(),
                  zeros[:1], zeros[:0])
    return batch, np.zeros((1, 4), np.float32), np.zeros((0, 0), np.float32)

large, small = arrays(20_000), arrays(9_000)
plan_of().run(*small)
expected = small[1].copy()
_, most = resource.getrlimit(resource.RLIMIT_AS)
refused = 0
for attempt in range(1000):
    plan = plan_of()
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + attempt * (256 << 10), most))
    try:
        plan.run(*large)
    except MemoryError:
        refused += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    small[1][:] = 0
    plan.run(*small)
    assert np.array_equal(small[1], expected), attempt
    if refused == attempt:
        break
assert np.isfinite(expected).all()
print("refused" if refused > 20 else refused)
"""
    assert run_child(code) == "refused\n"
