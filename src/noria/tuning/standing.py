"""How far a load is that is to be certain, for whoever waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """num_effective: independent trials that the requests so far tell as much as, of the limit of which most are
    missing, and num_needed of it; both 0 before anything was judged. num_needed: None where no number would do."""

    num_done: int
    num_planned: int
    num_effective: float
    num_needed: int | None
    left_s: float

    def words(self) -> str:
        told = [f"{self.num_done} of {self.num_planned} requests"]
        if self.num_needed is None:
            told.append(f"{self.num_effective:.0f} independent ones, too many late so far")
        elif self.num_needed:
            told.append(f"{self.num_effective:.0f} of {self.num_needed} independent ones")
        return ", ".join([*told, f"{self.left_s:.0f} s left"])
