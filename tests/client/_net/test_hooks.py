"""When the hooks of a producer are told, and that they break nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from roquet.client._net.hooks import ConsumeHooks, SendHooks, is_any
from roquet.client.hook import ConsumeEvent, ConsumeOutcome, Hook, SendEvent
from roquet.client.received import MessageSource, ReceivedMessage
from roquet.errors import CallTimeout, MessageError, ResponseError
from roquet.protocol.records.message import Message
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.hooks import CallsSeen, DeliveriesSeen, SendsSeen
from tests.client.producers import producer

SEND = RequestCode.SEND_MESSAGE_V2


def properties(broker: FakeBroker) -> list[str]:
    queues = broker.log.queues.items()
    stored = [record for (topic, _), records in queues if topic == "T" for record in records]
    return sorted(record.properties.get("trace", "") for record in stored)


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_each_send_is_told_with_its_result_and_its_properties_are_stored(
    cluster: FakeCluster, broker: FakeBroker, linger_ms: int
) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen], linger_ms=linger_ms) as p:
            results = await asyncio.gather(*(p.send("T", b"x", keys="k") for _ in range(3)))
            assert [event.results[0] for event in seen.ended] == list(results)

    seen = SendsSeen()
    cluster.run(send)
    assert seen.ended == seen.begun
    assert properties(broker) == ["1", "2", "3"]
    assert all(event.latency_ms > 0 and event.group == "P" for event in seen.ended)


def test_a_batch_is_one_send(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen]) as p:
            await p.send_batch([Message("T", b"1"), Message("T", b"2")])
            with pytest.raises(MessageError):
                await p.send_batch([])

    seen = SendsSeen()
    cluster.run(send)
    (event,) = seen.ended
    assert [len(event.messages), len(event.results)] == [2, 2]
    assert properties(broker) == ["1", "1"]


def test_a_one_way_send_has_no_result(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen, calls]) as p:
            await p.send_one_way("T", b"1")

    seen, calls = SendsSeen(), CallsSeen(SEND)
    cluster.run(send)
    assert [(event.is_one_way, event.results) for event in seen.ended] == [(True, ())]
    assert [(event.is_one_way, event.response_code) for event in calls.ended] == [(True, None)]
    assert properties(broker) == ["1"]


def test_a_request_is_one_send(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen]) as p:
            with pytest.raises(CallTimeout):
                await p.request(Message("T", b"1"), timeout_ms=500)

    seen = SendsSeen()
    cluster.run(send)
    assert [(event.error, len(event.results)) for event in seen.ended] == [(None, 1)]
    assert properties(broker) == ["1"]


def test_each_try_is_a_call_and_all_are_one_send(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen, calls]) as p:
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
            await p.send("T", b"1")

    seen, calls = SendsSeen(), CallsSeen(SEND)
    cluster.run(send)
    assert len(seen.ended) == 1
    busy = ResponseCode.SYSTEM_BUSY
    assert [event.response_code for event in calls.ended] == [busy, busy, 0]
    assert {event.address for event in calls.ended} == {broker.address}


def test_errors_and_cancellations_are_told(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[seen, calls]) as p:
            broker.script[SEND] = [ResponseCode.MESSAGE_ILLEGAL, SILENCE]
            with pytest.raises(ResponseError):
                await p.send("T", b"1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await p.send("T", b"2")

    seen, calls = SendsSeen(), CallsSeen(SEND)
    cluster.run(send)
    assert [type(event.error) for event in seen.ended] == [ResponseError, asyncio.CancelledError]
    assert [type(event.error) for event in calls.ended] == [type(None), asyncio.CancelledError]


class Failing(Hook):
    def before_send(self, event: SendEvent) -> None:
        raise ValueError("of the hook")

    def after_send(self, event: SendEvent) -> None:
        raise ValueError("of the hook")


def test_a_failing_hook_breaks_nothing_and_is_logged_once_per_method(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def send() -> None:
        async with producer(cluster, hooks=[Failing(), seen]) as p:
            for _ in range(5):
                await p.send("T", b"1")

    seen = SendsSeen()
    cluster.run(send)
    assert len(seen.ended) == 5
    lines = [line for line in caplog.messages if line.startswith("hook failed")]
    text = "hook failed, its further failures are not logged: hook=Failing method="
    assert lines == [text + "before_send", text + "after_send"]


class Named(Hook):
    def __init__(self, name: str, told: list[str]) -> None:
        self.name, self.told = name, told

    def before_send(self, event: SendEvent) -> None:
        self.told.append(f"before {self.name}")

    def after_send(self, event: SendEvent) -> None:
        self.told.append(f"after {self.name}")


async def test_hooks_are_called_in_their_order_and_back() -> None:
    told: list[str] = []
    hooks = SendHooks.of([Named("1", told), Hook(), Named("2", told)], "c", "P")
    assert hooks is not None
    with hooks.sending(Message("T", b"1")):
        pass
    assert told == ["before 1", "before 2", "after 2", "after 1"]


def test_hooks_that_look_at_nothing_cost_nothing() -> None:
    hooks = [Hook(), DeliveriesSeen()]
    assert SendHooks.of(hooks, "c", "P") is None
    assert ConsumeHooks.of([Hook(), SendsSeen()], "c", "G") is None
    assert not is_any(hooks, "before_call", "after_call")


class Around(Hook):
    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def _around(self) -> Iterator[None]:
        self.told.append("in")
        try:
            yield
        finally:
            self.told.append("out")

    def handling(self, _event: ConsumeEvent) -> object:  # type: ignore[override]
        return self._around()


class AroundNothing(Hook):
    def handling(self, _event: ConsumeEvent) -> None:
        return None


class AroundBroken(Hook):
    def handling(self, _event: ConsumeEvent) -> object:  # type: ignore[override]
        return object()


async def test_a_block_is_in_the_context_managers_of_hooks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    around, seen, ended = Around(), DeliveriesSeen(), list[bool]()
    hooks = ConsumeHooks.of([AroundBroken(), AroundNothing(), around, seen], "c", "G")
    assert hooks is not None
    record = Record(0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, b"1", "T", "")
    watch = hooks.delivered(
        ReceivedMessage(record, MessageSource("b"), 0), lambda: ended.append(True)
    )
    watch.enter()
    assert around.told == ["in"]
    watch.leave(ValueError("of the handler"))
    assert around.told == ["in", "out"]
    watch.settled(0)
    watch.end(ConsumeOutcome.EXPIRED)
    assert seen.outcomes() == ["failed"]
    assert ended == [True]
    assert [line for line in caplog.messages if "hook=AroundBroken method=handling" in line]
