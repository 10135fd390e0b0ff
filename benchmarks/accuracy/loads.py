"""Which loads are put on which servers: what is learnt from, and what is held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from noria.bench.pieces import Piece
from noria.bench.play import Play, make_play, num_requests
from noria.bench.workload import make_workload
from noria.config.benching import LoadOptions, WorkloadOptions

MAX_MODEL_LEN = 2048
SHARES = (0.74, 0.50, 0.95, 0.62, 0.86)  # of capacity; in this order, so that drift is no trend over the rate
REPEATED = (("chat", 0.74), ("reading", 0.86), ("talk", 0.62))  # measured again at the end: workload, share

# Arguments of noria serve, by name.
SETTINGS = {
    "32 x 512": ("--max-num-seqs", "32", "--max-num-batched-tokens", "512"),
    "16 x 256": ("--max-num-seqs", "16", "--max-num-batched-tokens", "256"),
}

# What is foretold: short chats, long prompts with short answers, conversations that share their beginnings.
WORKLOADS = {
    "chat": WorkloadOptions(
        prompt_tokens="lognormal:48,0.7,8,400", output_tokens="lognormal:40,0.5,8,128", bench_seed=11
    ),
    "reading": WorkloadOptions(
        prompt_tokens="lognormal:256,0.4,64,900", output_tokens="lognormal:8,0.5,2,32", bench_seed=12
    ),
    "talk": WorkloadOptions(
        prompt_tokens="lognormal:24,0.6,4,200",
        output_tokens="lognormal:24,0.5,4,96",
        prefix_tokens=160,
        prefix_groups=4,
        turns="1-4",
        bench_seed=13,
    ),
}

# What is learnt from: other lengths, other mixes, other seeds, and rates that nobody chose. The two take turns, because
# what a context costs is told from what a sequence costs only where equally many have long and short ones.
LEARNT = (
    WorkloadOptions(
        prompt_tokens="4-32*0.6+lognormal:64,0.8,8,400*0.34+200-900*0.06",
        output_tokens="2-16*0.5+16-96*0.5",
        prefix_tokens=16,
        prefix_groups=8,
        prefix_sharing=0.5,
        bench_seed=901,
    ),
    WorkloadOptions(
        prompt_tokens="4-64",
        output_tokens="2-16*0.5+16-96*0.5",
        prefix_tokens=600,
        prefix_groups=6,
        prefix_sharing=1.0,
        bench_seed=951,
    ),
)
LEVELS = (48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)  # requests at once


@dataclass(frozen=True, slots=True)
class Held:
    """A load that nothing is learnt from. share: of capacity. number: of how often it has been measured before."""

    workload: str
    setting: str
    share: float
    number: int = 0

    def __str__(self) -> str:
        again = " again" if self.number else ""
        return f"{self.workload}, {self.setting}, {self.share:.0%}{again}"

    def file(self, directory: Path) -> Path:
        name = f"{self.workload}-{self.setting}-{100 * self.share:.0f}-{self.number}.json"
        return directory / name.replace(" ", "")


def held_out() -> list[Held]:
    """In the order in which they are measured: settings and workloads alternate, so that drift hits all alike."""
    once = [Held(name, setting, share) for share in SHARES for name in WORKLOADS for setting in SETTINGS]
    again = [Held(name, setting, share, 1) for name, share in REPEATED for setting in SETTINGS]
    return once + again


def play_of(workload: str, rate: float, seconds: float) -> Play:
    """Poisson arrivals of a held-out workload; where it has conversations, each begins at its instant."""
    load = LoadOptions(rate=rate, duration=seconds)
    return _play(WORKLOADS[workload], load)


def saturating_play(workload: str, num_seqs: int, count: int) -> Play:
    """All places taken all the time. Each turn is a request of its own: nobody thinks."""
    options = replace(WORKLOADS[workload], pause=0.0)
    return _play(options, LoadOptions(max_concurrency=2 * num_seqs, requests=count))


def learning_plays(seconds: float, num_seqs: int, name: str = "learnt") -> Iterator[Play]:
    """So many seconds in all, of closed loops from more requests than run to one at once. Beginnings that prompts share
    are the same under all names, so they are computed once.
    """
    levels = [level for level in LEVELS if level <= 1.5 * num_seqs]
    weights = [1 + level**0.5 for level in levels]
    for number, (level, weight) in enumerate(zip(levels, weights, strict=True)):
        load = LoadOptions(max_concurrency=level, duration=seconds * weight / sum(weights) / len(LEARNT))
        for options in LEARNT:
            play = _play(replace(options, bench_seed=options.bench_seed + number), load)
            yield named_anew(play, f"{name} {number}", f"shared {options.bench_seed}")


def named_anew(play: Play, name: str, shared: str | None = None) -> Play:
    """The same lengths and instants with other tokens, so that no prompt is in a prefix cache from before.

    shared: name of the beginnings that several prompts have, if it is to be another one.
    """
    shared = name if shared is None else shared
    requests = tuple(
        replace(request, pieces=tuple(_named_anew(piece, name, shared) for piece in request.pieces))
        for request in play.requests
    )
    return replace(play, requests=requests)


def _named_anew(piece: Piece, name: str, shared: str) -> Piece:
    return replace(piece, name=f"{shared if piece.name.startswith('group ') else name} {piece.name}")


def _play(options: WorkloadOptions, load: LoadOptions) -> Play:
    count = num_requests(load, False)
    if load.rate is None and load.requests is None:
        count = 400  # of a closed loop of seconds: more than anybody answers
    return make_play(make_workload(options, count, MAX_MODEL_LEN, None), load, options.bench_seed)
