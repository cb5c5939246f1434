"""What producers and consumers of a simulated market promised each other."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable
from itertools import count
from typing import Final, TypeVar

from roquet.client.received import ReceivedMessage
from tests.simulation.order import Ledger
from tests.simulation.simulation import Simulation
from tests.simulation.threads import current_process

T = TypeVar("T")

ORDERS: Final = "orders"
ACCOUNTS: Final = "accounts"
BILLING, LEDGER, SCREENS = "billing", "ledger", "screens"
TOPIC_OF: Final = {BILLING: ORDERS, LEDGER: ACCOUNTS, SCREENS: ORDERS}
"""By consumer group: one consumes concurrently, one in order, one is broadcasting."""
WELL, FAILS, FAILS_TWICE, HANGS, IS_CANCELLED, IS_SLOW, IS_POISON = range(7)
_OUTCOMES: Final = (
    *[WELL] * 24, FAILS, FAILS, FAILS_TWICE, HANGS, IS_CANCELLED, IS_SLOW, IS_POISON
)  # fmt: skip


class HandlerFailed(Exception):  # noqa: N818 - it is the application's, as its name says
    """What a handler of the test raises."""


class HandlerCancelled(asyncio.CancelledError):
    """What a handler of the test raises as if something that it awaits was cancelled."""


class Books:
    """What was sent, and how its handling ended, in all groups.

    Invariant: `sent[topic]` are the keys that were answered SEND_OK. `well[group]` are those that a
    member has handled, `dead[group]` those that it gave up; those of a broadcasting group are
    `seen[host]`. `operations` are the calls of clients that have not ended: what, since when, and
    how long they may take.
    """

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.is_calm = False
        """Handlers end well and at once."""
        self.ledger = Ledger(sim)
        self.sent: defaultdict[str, set[str]] = defaultdict(set)
        self.well: defaultdict[str, set[str]] = defaultdict(set)
        self.dead: defaultdict[str, set[str]] = defaultdict(set)
        self.seen: defaultdict[str, set[str]] = defaultdict(set)
        self.operations: dict[int, tuple[str, float, float]] = {}
        self.longest_s: defaultdict[str, float] = defaultdict(float)
        self._numbers = count()
        self._tries: Counter[tuple[str, str]] = Counter()

    async def within(self, seconds: float, what: str, work: Awaitable[T]) -> T:
        """Await `work`, which has to end in this time, whatever comes of it."""
        number, began_s, process = next(self._numbers), self.sim.now_s, current_process.get()
        self.operations[number] = what, began_s, seconds
        try:
            return await work
        finally:
            del self.operations[number]
            took_s = self.sim.now_s - began_s
            self.longest_s[what] = max(took_s, self.longest_s[what])
            if process is not None and process.alive:
                assert took_s <= seconds, f"{what} took {took_s:.3f} s of {seconds} s"

    def check_operations(self) -> None:
        """No call of a client takes longer than it may."""
        for what, began_s, within_s in self.operations.values():
            took_s = self.sim.now_s - began_s
            assert took_s <= within_s, f"{what} takes {took_s:.3f} s already, {within_s} s at most"

    def outcome(self, group: str, message: ReceivedMessage) -> int:
        """How the handling of a message is going to end."""
        (key,) = message.keys
        tries = self._tries[group, key]
        self._tries[group, key] += 1
        outcome = random.Random(f"{group} {key}").choice(_OUTCOMES)
        if outcome == IS_POISON:
            return outcome
        if self.is_calm or tries > (outcome == FAILS_TWICE):
            return WELL
        return FAILS if outcome == FAILS_TWICE else outcome

    def missing(self, hosts: list[str]) -> dict[str, set[str]]:
        """By group, and by member of the broadcasting one, what was acknowledged but not handled.

        :param hosts: addresses of the members that get all messages.
        """
        orders, accounts = self.sent[ORDERS], self.sent[ACCOUNTS]
        left = {
            BILLING: orders - self.well[BILLING] - self.dead[BILLING],
            LEDGER: accounts - self.ledger.settled,
            **{host: orders - self.seen[host] for host in hosts},
        }
        return {name: keys for name, keys in left.items() if keys}
