"""Fair shares between tenants: start-time fair queueing, in tokens."""

from __future__ import annotations

from noria.core.request import Place, Request

UNIT = 1 << 20  # of virtual time, a token of a tenant of weight 1: fine enough for any weight
UNKNOWN_OUTPUT = 128  # tokens that a tenant's first request is expected to generate
_MEAN_UNIT = 256  # of a mean, a token
_MEAN_WEIGHT = 16  # a new output counts this much less than what is known


class FairShares:
    """Tenants who want the engine at the same time get it in proportion to their weights.

    Virtual time is counted in tokens by weight, in whole units. A request starts, virtually, where its tenant's
    previous one ended, or now if that is past; it goes before those that start later. Now is the latest start of any
    request that has begun. A tenant's own requests go first come, first served; with one tenant that is all there is.
    (P. Goyal, H. Vin, H. Cheng: Start-time Fair Queueing, SIGCOMM 1996.)

    In any time in which two tenants always have requests waiting, the tokens charged to those that began differ, by
    weight, by no more than the largest charge of the one and of the other. What a request is charged for is expected
    when it comes, and put right when it ends: in the place of those that come later, for places given stay.
    """

    def __init__(self) -> None:
        self._now = 0
        self._accounts: dict[str, _Account] = {}
        self._charges: dict[str, int] = {}  # tokens, by id of the requests that have not ended

    def place(self, request: Request, sequence: int) -> Place:
        account = self._accounts.setdefault(request.claim.tenant.name, _Account())
        start = max(self._now, account.next_start, account.last_start)
        charge = request.num_prompt + account.expected_output(request)
        self._charges[request.id] = charge
        account.last_start = start
        account.next_start = start + _virtual(charge, request)
        return (start, sequence)

    def began(self, request: Request) -> None:
        self._now = max(self._now, int(request.place[0]))

    def ended(self, request: Request) -> None:
        account = self._accounts[request.claim.tenant.name]
        account.next_start += _virtual(_served(request) - self._charges.pop(request.id), request)
        if request.life.last_token_s is not None:
            account.learn_output(request.num_output)
        if not self._charges:  # nobody wants anything: old debts are forgotten
            self._now = 0
            for idle in self._accounts.values():
                idle.next_start = idle.last_start = 0


class _Account:
    """What a tenant's next request is placed by."""

    __slots__ = ("_mean", "last_start", "next_start")

    def __init__(self) -> None:
        self.next_start = 0
        self.last_start = 0  # nobody is placed before who came first
        self._mean: int | None = None  # of its outputs, exponentially weighted

    def expected_output(self, request: Request) -> int:
        mean = UNKNOWN_OUTPUT if self._mean is None else self._mean // _MEAN_UNIT
        return min(request.max_known - request.num_prompt, mean)

    def learn_output(self, num_tokens: int) -> None:
        exact = num_tokens * _MEAN_UNIT
        self._mean = exact if self._mean is None else self._mean + (exact - self._mean) // _MEAN_WEIGHT


def _served(request: Request) -> int:
    """Tokens that the tenant got: computed once and for it. What a preemption has repeated is not its doing."""
    num_prompt = min(request.num_prompt, request.life.num_computed_once)
    return max(0, num_prompt - request.life.num_cached) + request.num_output


def _virtual(num_tokens: int, request: Request) -> int:
    return num_tokens * UNIT // request.claim.tenant.weight
