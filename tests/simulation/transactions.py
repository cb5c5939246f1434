"""Cashiers: applications in several processes that book in a database and send a message of it in
one transaction.

What they do with each follows from its key and the seed: some decide at once, some take their time
or fail, some find out only later what became of it, some never do. The database outlives them all,
so any of them can be asked.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import Final, Self

from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.broker.server import Broker
from roquet.broker.transactions.open_table import GROUP as CHECKING_GROUP
from roquet.broker.transactions.open_table import CheckRules
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.errors import RoquetError
from roquet.protocol.records import message as m
from roquet.protocol.records.message import Message
from roquet.protocol.records.record import Record, decode
from tests.simulation.nodes import (
    NAME_SERVER_PORT,
    BrokerNode,
    NameServerNode,
    drawn_config,
    with_role,
)
from tests.simulation.simulation import Host, Simulation
from tests.simulation.swallowed import SwallowedErrors

TOPIC: Final = "payments"
GROUP: Final = "cashiers"
MASTER: Final = "10.0.1.1"
SLOWEST_S: Final = 150.0
"""So long a decision may take; brokers go on to ask for some minutes, also when questions get
lost.
"""
COMMIT, ROLLBACK, UNKNOWN = TransactionState


class BookingError(Exception):
    """An application's own trouble; whether it has booked by then, only the database knows."""


@dataclass(frozen=True)
class Plan:
    """What becomes of one transaction: how its cashier behaves, and what the database says from
    when on.
    """

    way: str
    state: TransactionState
    takes_s: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Plan:
        way = chance.choice(("now", "now", "slow", "later", "raises", "never"))
        state = UNKNOWN if way == "never" else chance.choice((COMMIT, COMMIT, ROLLBACK))
        return cls(way, state, chance.uniform(0, chance.choice((5, 50, SLOWEST_S))))


@dataclass
class Database:
    """Invariant: what was decided once stays so.

    `asked[key]` are the times at which a broker asked for it.
    """

    seed: int
    decided: dict[str, tuple[TransactionState, float]] = field(default_factory=dict)
    asked: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[str, float] = field(default_factory=dict)
    """When the half messages were known to be stored."""

    def plan(self, key: str) -> Plan:
        return Plan.drawn(random.Random(f"{self.seed} {key}"))

    def decide(self, key: str, state: TransactionState, at_s: float) -> None:
        """It is so from that time on."""
        assert key not in self.decided, f"{key} was booked twice"
        self.decided[key] = state, at_s

    def state(self, key: str) -> TransactionState:
        state, at_s = self.decided.get(key, (UNKNOWN, 0.0))
        return state if asyncio.get_running_loop().time() >= at_s else UNKNOWN

    def keys(self, wanted: TransactionState) -> set[str]:
        """Those that ended up so, or that will have."""
        return {key for key, (state, _) in self.decided.items() if state is wanted}


class CashierNode:
    """One process of them after the other on one host."""

    def __init__(self, host: Host, name_server: str, database: Database) -> None:
        self.host = host
        self.database = database
        self.pending = 0
        self._name_server = name_server
        self._lives = 0
        self._numbers = count()
        self._producer: TransactionProducer | None = None

    def start(self) -> None:
        self._lives += 1
        self.pending = 0
        self.host.start(self._serve)

    async def _serve(self) -> None:
        client_id = f"{self.host.address}@{self._lives}"
        async with TransactionProducer(
            self._name_server,
            GROUP,
            self._check,
            topics=[TOPIC],
            client_id=client_id,
            runtime=self.host.runtime(),
        ) as self._producer:
            await asyncio.Event().wait()

    def work(self, transactions: int, within_s: float) -> None:
        """Begin so many, at any time from now on."""
        self.host.start(lambda: self._work(transactions, within_s))

    async def _work(self, transactions: int, within_s: float) -> None:
        chance = self.host.random
        keys = [
            f"{self.host.address}-{self._lives}-{next(self._numbers)}" for _ in range(transactions)
        ]
        self.pending += len(keys)
        async with asyncio.TaskGroup() as group:
            for key in keys:
                group.create_task(self._after(chance.uniform(0, within_s), key))

    async def _after(self, seconds: float, key: str) -> None:
        await asyncio.sleep(seconds)
        assert self._producer is not None
        message = Message(TOPIC, key.encode(), keys=key)
        try:
            await self._producer.send_in_transaction(message, self._book)
        except (RoquetError, BookingError):
            pass
        finally:
            self.pending -= 1

    async def _book(self, message: Message, transaction_id: str) -> TransactionState:
        key, now_s = message.body.decode(), asyncio.get_running_loop().time()
        self.database.stored[key] = now_s
        plan = self.database.plan(key)
        match plan.way:
            case "now":
                self.database.decide(key, plan.state, now_s)
            case "slow":
                await asyncio.sleep(plan.takes_s)
                self.database.decide(key, plan.state, 0.0)
            case "later":
                self.database.decide(key, plan.state, now_s + plan.takes_s)
            case "raises":
                self.database.decide(key, plan.state, now_s + plan.takes_s)
                raise BookingError(key)
        return self.database.state(key)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        key = message.body.decode()
        self.database.asked[key].append(asyncio.get_running_loop().time())
        return self.database.state(key)


def records(broker: Broker, topic: str) -> list[Record]:
    """All that a topic's queues have."""
    store = broker.store
    places = []
    for queue in (queue for queue in store.queues if queue.topic == topic):
        offset = queue.min_offset
        while offset < queue.max_offset:
            entries = list(queue.entries(offset, 1000))
            places += [at for at, *_ in entries]
            offset += len(entries)
    return [decode(store.log.record_at(at) or b"") for at in places]


def delivered(broker: Broker, topic: str = TOPIC) -> Counter[str]:
    """How often each key's message is there for consumers."""
    return Counter(record.body.decode() for record in records(broker, topic))


def check_settled(broker: Broker, database: Database, *, troubles: int) -> None:
    """What must be true when every transaction has ended or was given up.

    Each trouble may make a message come once more: a producer that got no answer sends its half
    message again, and a power failure between a message and the note of its end makes the broker
    ask again.
    """
    counts, given_up = delivered(broker), delivered(broker, m.CHECK_MAX_TIME_TOPIC)
    assert set(counts) == database.keys(COMMIT), "what was committed is delivered, and nothing else"
    assert max(counts.values(), default=0) <= 1 + troubles
    undecided = database.stored.keys() - database.decided.keys()
    assert undecided <= set(given_up), "what nobody decides on is given up"
    assert max(given_up.values(), default=0) <= 1 + troubles
    assert not len(broker.parts.halves.open)
    topics = m.HALF_TOPIC, m.HALF_OP_TOPIC
    noted = [broker.parts.tables.offsets.committed(CHECKING_GROUP, topic, 0) for topic in topics]
    assert noted == [broker.store.max_offset(topic, 0) for topic in topics], (
        "all of it may be forgotten"
    )


class TransactionWorld:
    """A name server, a master, and two cashiers, for hours."""

    def __init__(self, seed: int, flush: FlushDisk = FlushDisk.SYNC_FLUSH) -> None:
        self.sim = Simulation(f"transactions {seed}")
        self.chance = self.sim.chance("world")
        self.database = Database(seed)
        self.name_server = NameServerNode(self.sim.host("10.0.0.1"))
        address = f"{self.name_server.host.address}:{NAME_SERVER_PORT}"
        config = with_role(
            drawn_config(self.chance, address), BrokerRole.ASYNC_MASTER, 0, MASTER, flush
        )
        self.rules = CheckRules(
            self.chance.choice((1000, 6000, 20_000)), self.chance.choice((8, 15)), 60_000
        )
        self.master = BrokerNode("master", self.sim.host(MASTER), config)
        self.check_each(self.rules.period_ms)
        self.cashiers = [
            CashierNode(self.sim.host(f"10.0.4.{n}"), address, self.database) for n in (1, 2)
        ]
        self._swallowed = SwallowedErrors()

    def __enter__(self) -> Self:
        self.sim.__enter__()
        self._swallowed.__enter__()
        self.sim.check_always(self._swallowed.check)
        self.name_server.start()
        self.sim.run_until(lambda: self.name_server.is_serving, 10)
        self.start_master()
        for cashier in self.cashiers:
            cashier.start()
        self.sim.run_for(3)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._swallowed.__exit__()
        self.sim.__exit__(kind, error, trace)

    def check_each(self, period_ms: int) -> None:
        """Before its start: so often the master asks for what is open."""
        self.rules = replace(self.rules, period_ms=period_ms)
        self.master.config = replace(
            self.master.config,
            transaction_time_out=self.rules.timeout_ms,
            transaction_check_max=self.rules.checks_max,
            transaction_check_interval=period_ms,
        )

    @property
    def broker(self) -> Broker:
        assert self.master.broker is not None
        return self.master.broker

    def start_master(self) -> None:
        self.master.start()
        self.sim.run_until(lambda: self.master.broker is not None, 60)

    def work(self, transactions: int, within_s: float) -> None:
        """Each cashier begins so many within that time."""
        for cashier in self.cashiers:
            cashier.work(transactions, within_s)

    def settle(self) -> None:
        """Until nobody works on one any more, and all have ended or were given up."""
        longest_s = SLOWEST_S + (self.rules.checks_max + 2) * self.rules.period_ms / 1000
        self.sim.run_until(
            lambda: all(not cashier.pending for cashier in self.cashiers), 2 * longest_s
        )
        self.sim.run_until(lambda: not len(self.broker.parts.halves.open), 2 * longest_s)
        self.sim.run_for(10)
