"""Held pulls wait at their queues, and are answered a part of them in each turn of the loop.

How the places are shared is in test_held_pulls.py. See docs/broker/consumers.md#long-polling.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.delivery.long_polls import WOKEN_AT_ONCE, LongPolls
from roquet.common.steps import finished
from roquet.errors import Refused
from roquet.protocol.remoting.command import Command, decode
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from roquet.transport.connection import Connection
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from tests.storage.records import append_one
from tests.storage.small_stores import Clock, opened
from tests.transport.stub_transport import StubTransport

HOLD_MS: Final = 15_000
KEPT_MAX: Final = 4096
PLACES: Final = 1000
OVER: Final = "time is over"
FOUND: Final = "found"


class Peer:
    """A connection that reads or not, and the texts of the answers that were written to it."""

    def __init__(self, kept_max: int = 1 << 20) -> None:
        peers = Peers(PeerLimits(answer_bytes_per_connection_max=kept_max))
        self.connection = Connection({}, is_server=True, peers=peers)
        self.transport = StubTransport(self.connection)

    def texts(self) -> list[str]:
        return [str(decode(frame).remark) for frame in self.transport.take()]

    def stop_reading(self) -> None:
        self.transport.unread = 1 << 30
        self.connection.pause_if_unread()


class Polls:
    """Pulls that are held at the queues of one store, and a clock that a test moves."""

    def __init__(self, store: Store, count_max: int = PLACES) -> None:
        self.store = store
        self.clock_ms = 1000.0
        self.long_polls = LongPolls(lambda: self.clock_ms, count_max)
        self.fetches = 0

    def queue(self, queue_id: int = 0) -> ConsumeQueue:
        return self.store.queue("T", queue_id)

    def hold(
        self,
        peer: Peer,
        queue_id: int = 0,
        offset: int | None = None,
        hold_ms: int = HOLD_MS,
        *,
        answer_size: int = 0,
        size: int = 0,
    ) -> None:
        """Hold a pull that finds what its queue has at its offset."""
        queue = self.queue(queue_id)
        at = queue.max_offset if offset is None else offset

        def fetch_again(is_due: bool) -> bytes | None:
            self.fetches += 1
            if queue.max_offset > at:
                return Command(0, remark=FOUND, body=bytes(answer_size)).encode()
            return Command(0, remark=OVER).encode() if is_due else None

        self.long_polls.hold(peer.connection, queue, at, hold_ms, fetch_again, size)

    def grow(self, queue_id: int = 0) -> int:
        """Append a message to a queue, whose pulls are not told. Its physical offset."""
        at = append_one(self.store, self.queue(queue_id), b"b")
        self.store.end_turn()
        return at

    def wake(self, *queue_ids: int) -> None:
        self.long_polls.wake([self.queue(queue_id) for queue_id in queue_ids])

    def sweep(self) -> None:
        finished(self.long_polls.sweep())

    @property
    def waiting(self) -> dict[int, int]:
        """How many pulls wait at which queue."""
        return {queue.queue_id: len(pulls) for queue, pulls in self.long_polls.queues.items()}


async def turn() -> None:
    await asyncio.sleep(0)


@pytest.fixture
def polls(tmp_path: Path) -> Polls:
    return Polls(opened(tmp_path, Clock()))


@pytest.fixture
async def peer() -> Peer:
    return Peer()


# a queue grows


async def test_only_the_pulls_of_a_queue_that_grew_are_answered(polls: Polls, peer: Peer) -> None:
    for queue_id in (0, 0, 1):
        polls.hold(peer, queue_id)
    polls.grow(0)
    polls.wake(0)
    assert peer.texts() == [FOUND, FOUND]
    assert (polls.waiting, polls.long_polls.count, polls.fetches) == ({1: 1}, 1, 2)


async def test_a_pull_that_finds_nothing_waits_on(polls: Polls, peer: Peer) -> None:
    polls.hold(peer, 0, offset=1)
    polls.grow(0)
    polls.wake(0)
    assert (peer.texts(), polls.waiting) == ([], {0: 1})
    polls.grow(0)
    polls.wake(0)
    assert (peer.texts(), polls.waiting) == ([FOUND], {})


async def test_a_queue_without_pulls_is_woken_for_nothing(polls: Polls, peer: Peer) -> None:
    polls.hold(peer, 0)
    polls.grow(1)
    polls.wake(1)
    assert (polls.fetches, polls.waiting) == (0, {0: 1})


async def test_answers_for_one_connection_are_one_write(polls: Polls, peer: Peer) -> None:
    for queue_id in (0, 1, 1):
        polls.hold(peer, queue_id)
    for queue_id in (0, 1):
        polls.grow(queue_id)
    polls.wake(0, 1)
    assert len(peer.transport.writes) == 1
    assert peer.texts() == [FOUND] * 3


async def test_a_part_of_many_pulls_is_woken_in_each_turn(polls: Polls, peer: Peer) -> None:
    for number in range(2 * WOKEN_AT_ONCE + 1):
        polls.hold(peer, number % 2)
    for queue_id in (0, 1):
        polls.grow(queue_id)
    polls.wake(0, 1)
    answered = [polls.fetches]
    for _ in range(2):
        await turn()
        answered.append(polls.fetches)
    assert answered == [WOKEN_AT_ONCE, 2 * WOKEN_AT_ONCE, 2 * WOKEN_AT_ONCE + 1]
    assert peer.texts() == [FOUND] * (2 * WOKEN_AT_ONCE + 1)


async def test_growth_while_pulls_are_being_woken_waits_for_its_turn(
    polls: Polls, peer: Peer
) -> None:
    for _ in range(WOKEN_AT_ONCE + 1):
        polls.hold(peer, 0)
    polls.hold(peer, 1)
    polls.grow(0)
    polls.wake(0)
    polls.grow(1)
    polls.wake(1)
    assert polls.fetches == WOKEN_AT_ONCE
    await turn()
    assert (polls.fetches, polls.waiting) == (WOKEN_AT_ONCE + 2, {})


async def test_queues_with_a_record_from_an_offset_on_are_woken(polls: Polls, peer: Peer) -> None:
    for queue_id in (0, 1):
        polls.hold(peer, queue_id)
    polls.grow(0)
    at = polls.grow(1)
    polls.long_polls.wake_since(polls.store.log.end)
    assert polls.fetches == 0
    polls.long_polls.wake_since(at)
    assert (polls.fetches, polls.waiting) == (1, {0: 1})
    polls.long_polls.wake_since(0)
    assert polls.waiting == {}


# time


async def test_a_pull_is_answered_when_its_time_is_over_and_not_before(
    polls: Polls, peer: Peer
) -> None:
    polls.hold(peer, 0, hold_ms=500)
    polls.hold(peer, 0, hold_ms=501)
    polls.clock_ms += 499
    polls.sweep()
    assert peer.texts() == []
    polls.clock_ms += 1
    polls.sweep()
    assert (peer.texts(), polls.waiting) == ([OVER], {0: 1})


async def test_a_sweep_answers_pulls_whose_queue_grew_untold(polls: Polls, peer: Peer) -> None:
    polls.hold(peer, 0)
    polls.hold(peer, 1)
    polls.grow(1)
    polls.sweep()
    assert (peer.texts(), polls.waiting, polls.fetches) == ([FOUND], {0: 1}, 1)


async def test_a_sweep_checks_each_pull_once_a_few_in_each_step(polls: Polls, peer: Peer) -> None:
    for number in range(100):
        polls.hold(peer, 0, hold_ms=0 if number % 3 == 0 else HOLD_MS)
    fetches = [polls.fetches]
    fetches.extend(polls.fetches for _ in polls.long_polls.sweep())
    assert len(fetches) > 5
    assert max(after - before for before, after in pairwise(fetches)) <= 16
    assert peer.texts() == [OVER] * 34
    assert (polls.waiting, polls.fetches) == ({0: 66}, 34)


async def test_pulls_may_come_and_go_between_the_steps_of_a_sweep(polls: Polls, peer: Peer) -> None:
    for queue_id in range(3):
        for _ in range(40):
            polls.hold(peer, queue_id, hold_ms=0)
    sweep = polls.long_polls.sweep()
    next(sweep)
    polls.grow(2)
    polls.wake(2)
    polls.hold(peer, 0)
    finished(sweep)
    assert peer.texts().count(OVER) == 80
    assert polls.waiting == {0: 1}


# connections


async def test_a_closed_connection_has_no_pulls_any_more(polls: Polls, peer: Peer) -> None:
    other = Peer()
    for each in (peer, other):
        polls.hold(each, 0)
    polls.long_polls.connection_closed(peer.connection)
    assert polls.long_polls.count == 1
    polls.grow(0)
    polls.wake(0)
    assert (peer.texts(), other.texts(), polls.fetches) == ([], [FOUND], 1)
    assert polls.waiting == {}


async def test_nothing_is_fetched_for_a_connection_that_is_closing(
    polls: Polls, peer: Peer
) -> None:
    polls.hold(peer, 0)
    peer.transport.close()
    polls.grow(0)
    polls.wake(0)
    assert (polls.fetches, polls.waiting, polls.long_polls.count) == (0, {}, 0)


async def test_who_does_not_read_gets_its_messages_once_it_reads_again(
    polls: Polls, peer: Peer
) -> None:
    peer.stop_reading()
    polls.hold(peer, 0)
    polls.grow(0)
    polls.wake(0)
    polls.clock_ms += 2 * HOLD_MS
    polls.sweep()
    assert (peer.texts(), polls.fetches, polls.waiting) == ([], 0, {0: 1})
    peer.transport.read_all()
    assert (peer.texts(), polls.waiting) == ([FOUND], {})


async def test_large_answers_of_one_connection_leave_one_by_one(polls: Polls) -> None:
    """Each turn shows whether the client reads them."""
    peer = Peer(kept_max=KEPT_MAX)
    other = Peer(kept_max=KEPT_MAX)
    for _ in range(3):
        polls.hold(peer, 0, answer_size=KEPT_MAX)
    polls.hold(other, 0)
    polls.grow(0)
    polls.wake(0)
    counts = [len(peer.texts())]
    assert other.texts() == [FOUND]
    for _ in range(2):
        await turn()
        counts.append(len(peer.texts()))
    assert counts == [1, 1, 1]


async def test_answers_of_many_megabytes_are_sent_before_more_are_made(polls: Polls) -> None:
    first = Peer(kept_max=1 << 30)
    second = Peer()
    polls.hold(first, 0, answer_size=16 << 20)
    polls.hold(second, 0)
    polls.grow(0)
    polls.wake(0)
    assert (len(first.transport.writes), second.texts()) == (1, [])
    await turn()
    assert (second.texts(), polls.waiting) == ([FOUND], {})


async def test_what_a_pull_keeps_counts_for_its_connection_until_it_is_answered(
    polls: Polls, peer: Peer
) -> None:
    polls.hold(peer, 0, size=100)
    one = peer.connection.later.kept
    assert one > 100
    polls.hold(peer, 1, size=100)
    assert peer.connection.later.kept == 2 * one
    polls.grow(0)
    polls.wake(0)
    assert peer.connection.later.kept == one
    polls.clock_ms += HOLD_MS
    polls.sweep()
    assert peer.connection.later.kept == 0


async def test_a_connection_that_keeps_too_much_is_refused(polls: Polls) -> None:
    peer = Peer(kept_max=KEPT_MAX)
    polls.hold(peer, 0, size=KEPT_MAX)
    with pytest.raises(Refused, match="wait for their answers already"):
        polls.hold(peer, 0)
    assert (polls.waiting, polls.long_polls.count) == ({0: 1}, 1)


# places


async def test_a_newcomer_gets_the_place_of_the_oldest_pull_of_the_crowd(tmp_path: Path) -> None:
    polls = Polls(opened(tmp_path, Clock()), count_max=2)
    crowd = Peer()
    newcomer = Peer()
    polls.hold(crowd, 0)
    polls.hold(crowd, 1)
    polls.hold(newcomer, 2)
    assert (crowd.texts(), newcomer.texts()) == ([OVER], [])
    assert polls.long_polls.count == 2
    with pytest.raises(Refused, match="pullThreadPoolQueueCapacity"):
        polls.hold(newcomer, 2)
    for queue_id in (0, 1):
        polls.grow(queue_id)
    polls.wake(0, 1)
    assert (crowd.texts(), newcomer.texts()) == ([FOUND], [])
    assert crowd.connection.later.kept == 0


async def test_the_connection_of_a_crowd_that_does_not_read_ends(tmp_path: Path) -> None:
    polls = Polls(opened(tmp_path, Clock()), count_max=2)
    crowd = Peer()
    newcomer = Peer()
    for _ in range(2):
        polls.hold(crowd, 0)
    crowd.stop_reading()
    polls.hold(newcomer, 0)
    assert (crowd.transport.is_closed, crowd.texts(), polls.long_polls.count) == (True, [], 1)


async def test_a_pull_that_is_refused_takes_no_place_from_others(tmp_path: Path) -> None:
    polls = Polls(opened(tmp_path, Clock()), count_max=4)
    crowd = Peer()
    greedy = Peer(kept_max=KEPT_MAX)
    polls.hold(greedy, 0, size=KEPT_MAX)
    for _ in range(3):
        polls.hold(crowd, 0)
    with pytest.raises(Refused, match="wait for their answers already"):
        polls.hold(greedy, 0)
    assert (crowd.texts(), polls.long_polls.count) == ([], 4)
