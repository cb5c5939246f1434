"""A range is read whole and once, or fails in words and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.errors import AccessDenied, CallTimeout, CorruptRecord, PeerError
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record, host_bytes
from roquet.spark._options.ranges import DataLoss, MasterAway, QueueRange
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import Offsets
from roquet.spark._read import queue as queue_read
from roquet.spark._read.queue import NoProgress, RangeReader
from tests.simulation.loop import VirtualLoop

QUEUE = MessageQueue("orders", "broker-a", 0)
OPTIONS = ReadOptions(
    "ns:1",
    Selection(("orders",)),
    Offsets("earliest", {}),
    Offsets("latest", {}),
    no_progress_timeout_ms=100,
    pull_batch_size=4,
)


def answer(
    next_offset: int, min_offset: int, max_offset: int, body: bytes = b"", *, of_master: bool = True
) -> PullResult:
    return PullResult(
        PullStatus.FOUND, next_offset, min_offset, max_offset, 0, body, of_master=of_master
    )


def record(offset: int) -> bytes:
    return Record(
        queue_id=0,
        flag=0,
        queue_offset=offset,
        physical_offset=offset * 100,
        sys_flag=0,
        born_ms=0,
        born_host=host_bytes("10.0.0.9", 1),
        store_ms=0,
        store_host=host_bytes("10.0.0.1", 2),
        reconsume_times=0,
        prepared_offset=0,
        body=b"x",
        topic="orders",
        properties_text="",
    ).encode()


class Broker:
    """A queue with offsets from `min` up to `max`, which answers as Apache's broker does."""

    def __init__(self, minimum: int, maximum: int, *, gone: frozenset[int] = frozenset()) -> None:
        self.min = minimum
        self.max = maximum
        self.gone = gone
        self.pulls: list[int] = []
        self.at_once: list[int] = []

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        assert queue == QUEUE
        self.pulls.append(offset)
        if offset < self.min or offset >= self.max:
            return answer(self.min if offset < self.min else self.max, self.min, self.max)
        scanned = range(offset, min(offset + max_messages, self.max))
        found = b"".join(record(each) for each in scanned if each not in self.gone)
        return answer(scanned[-1] + 1, self.min, self.max, found)

    async def pull_all(
        self, queue: MessageQueue, offsets: Sequence[int], *, max_messages: int
    ) -> list[PullResult]:
        self.at_once.append(len(offsets))
        return [await self.pull(queue, offset, max_messages=max_messages) for offset in offsets]


class Faulty(Broker):
    """A broker whose first answers are replaced by what `faults` do instead."""

    def __init__(self, maximum: int, *faults: Callable[[], PullResult]) -> None:
        super().__init__(0, maximum)
        self._faults = list(faults)

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        if self._faults:
            return self._faults.pop(0)()
        return await super().pull(queue, offset, max_messages=max_messages)


def chunks(broker: Broker, start: int, end: int, options: ReadOptions = OPTIONS) -> list[list[int]]:
    """The offsets in each chunk of the range, read on virtual time."""

    async def read() -> list[list[int]]:
        reading = RangeReader(broker, QueueRange(QUEUE, start, end), options)
        found: list[list[int]] = []
        while (records := await reading.chunk()) is not None:
            found.append(records.queue_offsets.tolist())
        return found

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(read())


def offsets(broker: Broker, start: int, end: int, options: ReadOptions = OPTIONS) -> list[int]:
    return [offset for chunk in chunks(broker, start, end, options) for offset in chunk]


def timeout() -> PullResult:
    raise CallTimeout("broker-a did not answer")


def test_a_range_is_read_from_start_to_end_and_not_beyond() -> None:
    broker = Broker(0, 100)
    assert offsets(broker, 3, 14) == list(range(3, 14))
    assert broker.pulls == [3, 7, 11]


def test_ever_more_pulls_are_asked_for_at_once_while_all_goes_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_read, "AHEAD_MAX", 8)
    broker = Broker(0, 200)
    assert offsets(broker, 0, 129) == list(range(129))
    assert broker.at_once == [1, 2, 4, 8, 8, 8]
    assert broker.pulls == list(range(0, 129, 4)), "none was asked for twice"


def test_what_is_asked_for_at_once_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_read, "AHEAD_BYTES", 3 * 4 * len(record(0)))
    broker = Broker(0, 100)
    assert offsets(broker, 0, 100) == list(range(100))
    assert max(broker.at_once) == 3


def test_after_a_failure_few_pulls_are_asked_for_at_once_again() -> None:
    class Tired(Broker):
        """Answers no more than four pulls at once."""

        async def pull_all(
            self, queue: MessageQueue, offsets: Sequence[int], *, max_messages: int
        ) -> list[PullResult]:
            found = await super().pull_all(queue, offsets, max_messages=max_messages)
            return found if len(offsets) <= 4 else [timeout()]

    broker = Tired(0, 200)
    assert offsets(broker, 0, 100) == list(range(100))
    assert broker.at_once[:7] == [1, 2, 4, 8, 1, 2, 4]


def test_a_broker_that_gives_less_than_wanted_is_asked_for_what_it_gives() -> None:
    class Small(Broker):
        async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
            return await super().pull(queue, offset, max_messages=min(3, max_messages))

    broker = Small(0, 100)
    assert offsets(broker, 0, 99) == list(range(99))
    assert broker.pulls == list(range(0, 99, 3)), "none was asked for twice"


class Moody(Broker):
    """Answers with fewer messages than asked for, late, or not at all, as `moods` say."""

    def __init__(self, maximum: int, gone: frozenset[int], moods: list[int]) -> None:
        super().__init__(0, maximum, gone=gone)
        self._moods = moods

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        mood = self._moods.pop() if self._moods else 9
        for _ in range(mood % 3):
            await asyncio.sleep(0)
        if mood == 0:
            raise CallTimeout("in no mood")
        return await super().pull(queue, offset, max_messages=min(max_messages, mood))


@settings(deadline=None)
@given(
    st.integers(0, 60),
    st.frozensets(st.integers(0, 60), max_size=20),
    st.lists(st.integers(0, 9)),
    st.integers(1, 30),
)
def test_whatever_brokers_do_each_message_comes_once_and_in_order(
    end: int, gone: frozenset[int], moods: list[int], chunk_records: int
) -> None:
    broker = Moody(100, gone, moods)
    wanted = replace(OPTIONS, fail_on_data_loss=False, no_progress_timeout_ms=600_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_read, "CHUNK_RECORDS", chunk_records)
        found = offsets(broker, 0, end, wanted)
    assert found == [offset for offset in range(end) if offset not in gone]


def test_chunks_hold_as_much_as_a_batch_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_read, "CHUNK_RECORDS", 6)
    assert [len(chunk) for chunk in chunks(Broker(0, 100), 0, 11)] == [6, 5]


def test_a_broker_that_comes_back_is_read_on_from_where_it_was_left() -> None:
    broker = Faulty(10, timeout, timeout)
    assert offsets(broker, 0, 10) == list(range(10))


def test_a_slave_that_lags_is_waited_for() -> None:
    def lagging() -> PullResult:
        return answer(0, 0, 0)

    assert offsets(Faulty(10, lagging, lagging), 0, 10) == list(range(10))


@pytest.mark.parametrize("may_lose", [False, True])
@pytest.mark.parametrize(
    "slave",
    [
        answer(0, 0, 0, of_master=False),
        answer(5, 5, 20, of_master=False),
        answer(6, 5, 20, record(5), of_master=False),
    ],
)
def test_what_a_slave_lacks_is_waited_for_and_never_passed_over(
    slave: PullResult, may_lose: bool
) -> None:
    """It lags, or has lost what is old: whatever it says where to go on, only its master is
    believed.
    """
    wanted = replace(OPTIONS, fail_on_data_loss=not may_lose)
    assert offsets(Faulty(20, lambda: slave, lambda: slave), 0, 10, wanted) == list(range(10))
    with pytest.raises(MasterAway, match=r"wanted offset 0 of .*, but only a slave answered"):
        offsets(Faulty(20, *[lambda: slave] * 1000), 0, 10, wanted)


def test_a_part_that_a_slave_left_out_between_answers_is_asked_for_again() -> None:
    first = answer(4, 0, 20, record(0) + record(1), of_master=False)
    assert offsets(Faulty(20, lambda: first), 0, 10) == list(range(10))


def test_silence_ends_in_an_error_even_if_loss_is_allowed() -> None:
    broker = Faulty(10, *[timeout] * 1000)
    with pytest.raises(
        NoProgress,
        match=r"orders@broker-a:0\[0, 10\): no answer for offset 0 in 0.1 s, last CallTime",
    ):
        offsets(broker, 0, 10, replace(OPTIONS, fail_on_data_loss=False))


def test_a_silent_broker_is_asked_less_and_less_often_until_the_time_is_over() -> None:
    asked_at: list[float] = []

    def silent() -> PullResult:
        asked_at.append(round(asyncio.get_running_loop().time(), 3))
        raise CallTimeout("broker-a did not answer")

    with pytest.raises(NoProgress, match="no answer for offset 0 in 4 s"):
        offsets(Faulty(10, *[silent] * 1000), 0, 10, replace(OPTIONS, no_progress_timeout_ms=4000))
    assert asked_at == [0, 0.05, 0.15, 0.35, 0.75, 1.55, 2.55, 3.55, 4]


def test_a_broker_that_does_not_let_us_in_is_asked_once() -> None:
    def deny() -> PullResult:
        raise AccessDenied(1, "No accessKey is configured", "broker-a", "give credentials")

    broker = Faulty(10, deny)
    with pytest.raises(
        AccessDenied, match="broker-a denies access: No accessKey is configured; give credentials"
    ):
        offsets(broker, 0, 10)


def test_a_broker_that_keeps_what_it_has_ends_in_an_error() -> None:
    broker = Faulty(10, *[lambda: answer(0, 0, 10)] * 1000)
    with pytest.raises(NoProgress, match="has offset 0 but does not return it"):
        offsets(broker, 0, 10)


def test_messages_removed_before_they_were_read_are_data_loss() -> None:
    with pytest.raises(DataLoss, match="orders@broker-a:0: wanted offsets 2 to 4, min 5, max 20"):
        offsets(Broker(5, 20), 2, 10)


def test_messages_that_never_come_are_data_loss() -> None:
    with pytest.raises(DataLoss, match="wanted offsets 8 to 11, min 0, max 8"):
        offsets(Broker(0, 8), 2, 12)


def test_messages_missing_between_others_are_data_loss() -> None:
    with pytest.raises(DataLoss, match="wanted offsets 0 to 3, 2 of them are missing"):
        offsets(Broker(0, 20, gone=frozenset({1, 2})), 0, 10)


def test_a_whole_answer_missing_is_data_loss() -> None:
    with pytest.raises(DataLoss, match="wanted offsets 4 to 7, min 0, max 20"):
        offsets(Broker(0, 20, gone=frozenset(range(4, 8))), 0, 10)


@pytest.mark.parametrize(
    ("broker", "expected"),
    [
        (Broker(5, 20), list(range(5, 10))),
        (Broker(15, 20), []),
        (Broker(0, 8), list(range(2, 8))),
        (Broker(0, 20, gone=frozenset({3, 4, 6, 7, 8})), [2, 5, 9]),
    ],
)
def test_loss_that_is_allowed_is_logged_and_skipped(
    broker: Broker, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    assert offsets(broker, 2, 10, replace(OPTIONS, fail_on_data_loss=False)) == expected
    assert "data loss in queue orders@broker-a:0" in caplog.text


def test_answers_out_of_order_are_refused() -> None:
    with pytest.raises(PeerError, match="out of order"):
        offsets(Faulty(10, lambda: answer(2, 0, 10, record(1) + record(0))), 0, 10)


def test_answers_that_are_no_records_are_refused() -> None:
    with pytest.raises(CorruptRecord):
        offsets(Faulty(10, lambda: answer(2, 0, 10, b"garbage" * 50)), 0, 10)
