"""How a message is sent: which queue is tried, which failures are tried again, and how often."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import Any

import pytest

from roquet.client._send.sender import IN_FLIGHT_MAX, RETRIED_CODES
from roquet.client.producer import Producer
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendStatus
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    ResponseError,
    RouteNotFound,
)
from roquet.protocol.records.message import DEFAULT_TOPIC, Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import queue
from tests.client.producers import bodies, producer
from tests.simulation.network import LinkQuality

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def other(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker("10.0.2.1:10911", "broker-b")


def test_messages_are_spread_over_all_queues(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> set[MessageQueue]:
        async with producer(cluster) as p:
            return {(await p.send("T", b"hi")).queue for _ in range(8)}

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    assert len(cluster.run(send)) == 8


@pytest.mark.parametrize("code", [17, 14, 1, 16, 204, 205, 2])
def test_a_refusal_that_another_broker_may_not_share_is_tried_there(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker, code: int
) -> None:
    async def send() -> list[str]:
        async with producer(cluster) as p:
            return [(await p.send("T", b"hi")).queue.broker_name for _ in range(2)]

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = [code] * 9
    assert cluster.run(send) == ["broker-b"] * 2


@pytest.fixture
def three(cluster: FakeCluster, broker: FakeBroker, other: FakeBroker) -> list[FakeBroker]:
    """Brokers of the topic T that have messages, but do not store them safely."""
    brokers = [broker, other, cluster.broker("10.0.3.1:10911", "broker-c")]
    for each in brokers:
        cluster.create("T", each.name)
        each.send_status = ResponseCode.FLUSH_DISK_TIMEOUT
    return brokers


def sends_to(brokers: list[FakeBroker]) -> list[int]:
    return [len(each.requests[SEND]) for each in brokers]


def test_a_message_that_is_not_stored_safely_stays_where_it_is(
    cluster: FakeCluster, three: list[FakeBroker]
) -> None:
    async def send() -> SendStatus:
        async with producer(cluster) as p:
            return (await p.send("T", b"hi")).status

    assert cluster.run(send) is SendStatus.FLUSH_DISK_TIMEOUT
    assert sum(sends_to(three)) == 1


def test_a_message_that_is_not_stored_safely_goes_to_another_broker_if_that_is_wanted(
    cluster: FakeCluster, three: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster, retry_another_broker_when_not_stored=True) as p:
            for _ in range(5):
                result = await p.send("T", b"hi")
                assert (result.status, result.queue.broker_name) == (
                    SendStatus.SEND_OK,
                    "broker-c",
                )
            (batched,) = await p.send_batch([Message("T", b"hi")])
            assert batched.status is SendStatus.SEND_OK

    three[2].send_status = ResponseCode.SUCCESS
    cluster.run(send)
    assert max(sends_to(three)) == 5


@pytest.mark.parametrize(("retries", "sends"), [(None, 3), (5, 3), (1, 2), (0, 1)])
def test_no_broker_gets_it_twice_and_retries_bound_the_tries(
    cluster: FakeCluster, three: list[FakeBroker], retries: int | None, sends: int
) -> None:
    async def send() -> SendStatus:
        options: dict[str, Any] = {"retries": retries}
        async with producer(cluster, retry_another_broker_when_not_stored=True, **options) as p:
            return (await p.send("T", b"hi")).status

    assert cluster.run(send) is SendStatus.FLUSH_DISK_TIMEOUT
    assert (sum(sends_to(three)), max(sends_to(three))) == (sends, 1)


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_BUSY, ResponseCode.MESSAGE_ILLEGAL])
def test_what_other_brokers_do_then_is_no_error_as_one_has_the_message(
    cluster: FakeCluster, three: list[FakeBroker], code: int
) -> None:
    async def send() -> str:
        async with producer(cluster, retry_another_broker_when_not_stored=True) as p:
            result = await p.send("T", b"hi")
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
            return result.queue.broker_name

    def refuse_unless_first(broker: FakeBroker, request: Command) -> None:
        if request.code == SEND and sum(sends_to(three)) > 1:
            broker.script[SEND].append(code)

    for each in three:
        each.on_request = partial(refuse_unless_first, each)
    name = cluster.run(send)
    (stored,) = [each for each in three if each.name == name]
    assert bodies(stored) == [b"hi"]
    assert sum(sends_to(three)) > 1


def test_a_half_message_is_not_doubled(cluster: FakeCluster, three: list[FakeBroker]) -> None:
    async def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def local(_: Message, __: str) -> TransactionState:
        return TransactionState.COMMIT

    async def send() -> TransactionState:
        async with TransactionProducer(
            NAME_SERVER,
            "P",
            check,
            runtime=cluster.client.runtime(),
            retry_another_broker_when_not_stored=True,
        ) as p:
            return (await p.send_in_transaction(Message("T", b"hi"), local)).state

    assert cluster.run(send) is TransactionState.ROLLBACK
    assert sum(sends_to(three)) == 1


def test_a_send_to_a_fixed_queue_stays_there(cluster: FakeCluster, three: list[FakeBroker]) -> None:
    async def send() -> None:
        async with producer(cluster, retry_another_broker_when_not_stored=True) as p:
            await p.send("T", b"hi", queue=MessageQueue("T", "broker-b", 1))
            await p.send("T", b"hi", sharding_key="k")

    cluster.run(send)
    assert sum(sends_to(three)) == 2


@pytest.mark.parametrize("code", [13, 26])
def test_any_other_refusal_is_an_error_at_once(
    cluster: FakeCluster, broker: FakeBroker, code: int
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")

    broker.script[SEND] = [code]
    with pytest.raises(ResponseError, match=f"10.0.1.1:10911 answered code {code}: scripted"):
        cluster.run(send)
    assert len(broker.requests[SEND]) == 1


@pytest.mark.parametrize(
    ("options", "tries"), [({}, 7), ({"retries": 2}, 3), ({"retries": 100}, 7), ({"retries": 0}, 1)]
)
def test_a_refusal_is_the_callers_when_tries_or_time_are_over(
    cluster: FakeCluster, broker: FakeBroker, options: dict[str, Any], tries: int
) -> None:
    async def send() -> float:
        async with producer(cluster, **options) as p:
            await p.queues("T")
            began = cluster.sim.now_s
            said = "" if tries == 1 else f" ({tries} tries)"
            with pytest.raises(ResponseError, match=rf"code 14: scripted{re.escape(said)}$"):
                await p.send("T", b"hi")
            return cluster.sim.now_s - began

    broker.script[SEND] = [14] * 999
    assert cluster.run(send) <= 3
    assert len(broker.requests[SEND]) == tries
    assert len({request.fields["i"] for request in broker.requests[SEND]}) == 1, (
        "every try carries the same id"
    )


@pytest.mark.parametrize("slave_is_listed", [False, True])
def test_a_broker_that_restarts_in_half_a_second_is_no_error(
    cluster: FakeCluster, broker: FakeBroker, slave_is_listed: bool
) -> None:
    """While the master is gone, a route may have its slave only."""

    async def restart() -> None:
        await asyncio.sleep(0.5)
        cluster.restart(broker)

    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"before")
            broker.host.kill()
            cluster.listed.discard(broker.address)
            restarting = cluster.sim.loop.create_task(restart())
            await asyncio.gather(*(p.send("T", b"meanwhile %d" % number) for number in range(50)))
            await restarting

    if slave_is_listed:
        cluster.broker("10.0.1.9:10911", "broker-a", broker_id=1)
    cluster.run(send)
    assert len(bodies(broker)) == 51


def test_a_client_that_starts_while_the_only_broker_restarts_waits_for_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """No name server knows any topic then, nor the one that new topics are made of."""

    async def restart() -> None:
        await asyncio.sleep(1.5)
        cluster.restart(broker)

    async def send() -> None:
        broker.host.kill()
        cluster.listed.discard(broker.address)
        async with producer(cluster) as p:
            restarting = cluster.sim.loop.create_task(restart())
            await asyncio.gather(*(p.send("T", b"%d" % number) for number in range(50)))
            await restarting

    broker.create("T", 4)
    cluster.run(send)
    assert len(bodies(broker)) == 50


def test_a_topic_that_may_not_be_written_to_is_told_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            began = cluster.sim.now_s
            with pytest.raises(RouteNotFound, match="topic T has no writable queue"):
                await p.send("T", b"hi")
            assert cluster.sim.now_s - began < 0.1

    broker.create("T", 4)
    cluster.read_only.add("T")
    cluster.run(send)


@pytest.mark.parametrize(("retries", "seconds", "tries"), [(None, 3.0, " (7 tries)"), (0, 0.0, "")])
def test_a_topic_that_is_mistyped_is_told_when_the_time_is_over(
    cluster: FakeCluster, broker: FakeBroker, retries: int | None, seconds: float, tries: str
) -> None:
    async def send() -> None:
        async with producer(cluster, retries=retries) as p:
            began = cluster.sim.now_s
            with pytest.raises(RouteNotFound, match=rf"the addresses{re.escape(tries)}$"):
                await p.send("ordres", b"hi")
            assert cluster.sim.now_s - began == pytest.approx(seconds, abs=0.2)

    del cluster.topics[DEFAULT_TOPIC]  # no topic is made by a send
    cluster.run(send)


def test_a_silent_name_server_does_not_keep_a_send_from_the_other_broker(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.queues("T")
            broker.host.kill()
            cluster.sim.network.isolate(cluster.name_server_host.address)
            began = cluster.sim.now_s
            assert {(await p.send("T", b"hi")).queue.broker_name for _ in range(8)} == {"broker-b"}
            return cluster.sim.now_s - began

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    assert cluster.run(send) < 4


def test_one_budget_of_time_holds_for_all_tries(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [SILENCE] * 9
            began = cluster.sim.now_s
            with pytest.raises(CallTimeout):
                await p.send("T", b"hi")
            return cluster.sim.now_s - began

    assert cluster.run(send) == pytest.approx(3, abs=0.01)


def test_a_broker_that_is_gone_is_replaced_by_another_and_forgotten(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> list[str]:
        async with producer(cluster) as p:
            await p.queues("T")
            broker.host.kill()
            cluster.listed.discard(broker.address)
            return [(await p.send("T", b"hi")).queue.broker_name for _ in range(8)]

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    assert cluster.run(send) == ["broker-b"] * 8
    assert cluster.route_requests.count("T") == 2, (
        "asked for once, and once more when the broker was gone"
    )


def test_a_broker_that_is_busy_is_not_asked_again_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.queues("T")
            began = cluster.sim.now_s
            await p.send("T", b"hi")
            return cluster.sim.now_s - began

    broker.script[SEND] = [2]
    assert 0.1 <= cluster.run(send) < 0.2


def test_messages_of_one_key_keep_their_queue_and_their_order(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> set[MessageQueue]:
        async with producer(cluster) as p:
            queues = set()
            for number in range(5):
                queues.add((await p.send("T", b"%d" % number, sharding_key="order-1")).queue)
            return queues

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = other.script[SEND] = [1, 14]
    assert len(cluster.run(send)) == 1
    assert bodies(broker) + bodies(other) == [b"%d" % number for number in range(5)]


def test_a_message_for_one_queue_goes_nowhere_else(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi", queue=MessageQueue("T", "broker-a", 2))

    cluster.create("T", "broker-a")
    cluster.create("T", "broker-b")
    broker.script[SEND] = [14] * 99
    with pytest.raises(ResponseError, match="code 14"):
        cluster.run(send)
    assert {request.fields["e"] for request in broker.requests[SEND]} == {"2"}
    assert other.requests[SEND] == []


def test_a_one_way_send_waits_for_no_answer(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> str:
        async with producer(cluster) as p:
            return await p.send_one_way("T", b"hi")

    broker.script[SEND] = [SILENCE]
    message_id = cluster.run(send)
    (request,) = broker.requests[SEND]
    assert request.is_one_way
    assert message_id in request.fields["i"]


def test_as_many_sends_are_in_flight_as_the_option_says(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, max_in_flight=3, retries=0) as p:
            broker.script[SEND] = [SILENCE] * 3
            sends = [
                asyncio.create_task(p.send("T", b"hi", timeout_ms=3000 if number < 3 else 6000))
                for number in range(5)
            ]
            await asyncio.sleep(2.9)
            assert len(broker.requests[SEND]) == 3
            await asyncio.wait(sends)
            assert [send.exception() is None for send in sends] == [False] * 3 + [True] * 2

    cluster.run(send)


def test_sends_that_wait_behind_a_silent_broker_end_with_their_time_and_are_not_sent(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> list[BaseException | None]:
        async with producer(cluster) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [SILENCE] * 9999
            began = cluster.sim.now_s
            sends = [asyncio.create_task(p.send("T", b"hi")) for _ in range(1000)]
            await asyncio.wait(sends)
            assert cluster.sim.now_s - began == pytest.approx(3, abs=0.01)
            return [send.exception() for send in sends]

    errors = cluster.run(send)
    assert {type(error) for error in errors} == {CallTimeout}
    assert all("the send to topic T was not sent" in str(error) for error in errors[IN_FLIGHT_MAX:])
    assert len(broker.requests[SEND]) == 1 + IN_FLIGHT_MAX


def test_a_silent_broker_keeps_no_send_to_another_one_waiting(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Its sends took all slots of the producer, and had them until their time was over."""
    other = cluster.broker("10.0.2.1:10911", "broker-b")
    broker.create("T", 1)
    other.create("U", 1)
    for each in (broker, other):
        each.create("BOTH", 1)

    async def send() -> tuple[float, float]:
        async with producer(cluster) as p:
            for topic in ("T", "U", "BOTH", "BOTH"):
                await p.send(topic, b"first")
            broker.script[SEND] = [SILENCE] * 9999
            stuck = [asyncio.create_task(p.send("T", b"hi")) for _ in range(1000)]
            await asyncio.sleep(0.5)
            began = cluster.sim.now_s
            await p.send("U", b"hi")
            of_its_own = cluster.sim.now_s - began
            await asyncio.gather(*(p.send("BOTH", b"hi") for _ in range(IN_FLIGHT_MAX)))
            of_both = cluster.sim.now_s - began
            errors = await asyncio.gather(*stuck, return_exceptions=True)
            assert {type(error) for error in errors} == {CallTimeout}
            return of_its_own, of_both

    assert max(cluster.run(send)) < 0.2
    assert len(broker.requests[SEND]) == 2 + IN_FLIGHT_MAX


@pytest.mark.parametrize("refusal", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_BUSY])
def test_sends_that_wait_for_their_next_try_keep_no_other_topic_waiting(
    cluster: FakeCluster, broker: FakeBroker, refusal: int
) -> None:
    """A broker that refuses a topic answers at once: its sends wait nearly all their time."""

    def refuse(request: Command) -> None:
        if request.code == SEND and (request.fields or {})["b"] == "REFUSED":
            broker.script[SEND].append(refusal)

    async def send() -> list[float]:
        async with producer(cluster, max_in_flight=4) as p:
            await p.send("T", b"first")
            broker.on_request = refuse
            refused = [asyncio.create_task(p.send("REFUSED", b"hi")) for _ in range(20)]
            waits: list[float] = []
            for _ in range(20):
                await asyncio.sleep(0.1)
                began = cluster.sim.now_s
                await p.send("T", b"hi")
                waits.append(cluster.sim.now_s - began)
            errors = await asyncio.gather(*refused, return_exceptions=True)
            assert all(" tries" in str(error) for error in errors)
            return waits

    broker.create("T", 1)
    broker.create("REFUSED", 1)
    assert max(cluster.run(send)) < 0.5


def test_a_retry_that_finds_no_slot_tells_what_the_broker_said(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, max_in_flight=2) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY, SILENCE, SILENCE]
            refused = asyncio.create_task(p.send("T", b"refused", timeout_ms=1000))
            await asyncio.sleep(0.05)
            silent = [asyncio.create_task(p.send("T", b"silent")) for _ in range(2)]
            with pytest.raises(ResponseError, match="scripted"):
                await refused
            await asyncio.wait(silent)
            assert [type(each.exception()) for each in silent] == [CallTimeout] * 2

    broker.create("T", 1)
    cluster.run(send)


def test_with_one_slot_sends_to_a_broker_keep_their_order_in_spite_of_retries(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, max_in_flight=1) as p:
            await p.queues("T")
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY]
            await asyncio.gather(*(p.send("T", b"%d" % number) for number in range(3)))

    broker.create("T", 1)
    cluster.run(send)
    assert [record.body for record in broker.log.queues["T", 0]] == [b"0", b"1", b"2"]


def test_a_send_waits_behind_longer_ones_no_longer_than_its_own_time(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> float:
        async with producer(cluster, max_in_flight=1) as p:
            broker.script[SEND] = [SILENCE]
            longer = asyncio.create_task(p.send("T", b"longer", timeout_ms=60_000))
            await asyncio.sleep(1)
            began = cluster.sim.now_s
            with pytest.raises(CallTimeout, match="was not sent: it waited 500 ms behind other"):
                await p.send("T", b"hi", timeout_ms=500)
            waited_s = cluster.sim.now_s - began
            longer.cancel()
            await asyncio.wait([longer])
            return waited_s

    assert cluster.run(send) == pytest.approx(0.5, abs=0.01)
    assert len(broker.requests[SEND]) == 1


def test_a_retry_waits_for_its_answer_only_until_the_time_of_the_send_is_over(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.queues("T")
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY, SILENCE]
            began = cluster.sim.now_s
            with pytest.raises(CallTimeout, match="2 tries"):
                await p.send("T", b"hi", timeout_ms=1000)
            return cluster.sim.now_s - began

    assert cluster.run(send) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_send_without_time_is_not_sent(
    cluster: FakeCluster, broker: FakeBroker, timeout_ms: int
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            with pytest.raises(CallTimeout, match="topic T was not sent"):
                await p.send("T", b"hi", timeout_ms=timeout_ms)

    cluster.run(send)
    assert broker.requests[SEND] == []


@pytest.mark.parametrize(
    "options",
    [
        {"max_in_flight": 0},
        {"max_in_flight": True},
        {"retries": -1},
        {"retries": "2"},
        {"timeout_ms": 0},
    ],
)
def test_a_number_that_cannot_be_used_is_refused_when_it_is_given(
    cluster: FakeCluster, options: dict[str, Any]
) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} is {options[name]!r}: allowed are"):
        producer(cluster, **options)


def test_a_dead_broker_is_told_of_once_and_once_when_it_is_back(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"before")
            broker.host.kill()
            sends = [p.send("T", b"%d" % number, timeout_ms=900) for number in range(1000)]
            ends = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(end) for end in ends} <= {ConnectionClosed, CallTimeout}
            cluster.restart(broker)
            await asyncio.gather(*(p.send("T", b"after") for _ in range(10)))

    cluster.run(send)
    lines = [line for line in caplog.messages if "answer" in line]
    assert len(lines) == 2, lines
    assert lines[0].startswith(f"broker does not answer: address={broker.address} error=")
    assert lines[1] == f"broker answers again: address={broker.address}"


def test_a_cancelled_send_gives_its_turn_to_another(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            broker.script[SEND] = [SILENCE] * IN_FLIGHT_MAX
            silent = [asyncio.create_task(p.send("T", b"silent")) for _ in range(IN_FLIGHT_MAX)]
            waiting = asyncio.create_task(p.send("T", b"cancelled while it waits"))
            last = asyncio.create_task(p.send("T", b"last"))
            await asyncio.sleep(1)
            for task in (*silent, waiting):
                task.cancel()
            await last

    cluster.run(send)
    assert bodies(broker) == [b"last"]


def test_a_send_that_fails_for_good_has_the_route_asked_for_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, retries=0) as p:
            await p.queues("T")
            broker.host.kill()
            asked = cluster.route_requests.count("T")
            with pytest.raises(ConnectionClosed):
                await p.send("T", b"hi")
            await asyncio.sleep(1)
            assert cluster.route_requests.count("T") == asked + 1

    cluster.create("T", "broker-a")
    cluster.run(send)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_the_wall_clock_does_not_count_for_the_time_of_a_send(
    cluster: FakeCluster, broker: FakeBroker, jump_ms: int
) -> None:
    async def send() -> float:
        async with producer(cluster) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [SILENCE] * 9
            began = cluster.sim.now_s
            sending = asyncio.create_task(p.send("T", b"hi"))
            await asyncio.sleep(1)
            cluster.client.clock_ahead_ms += jump_ms
            with pytest.raises(CallTimeout):
                await sending
            return cluster.sim.now_s - began

    assert cluster.run(send) == pytest.approx(3, abs=0.01)


# brokers that are slow or fail


def slow_down(cluster: FakeCluster, broker: FakeBroker) -> None:
    """Each send to the broker takes 0.6 s from now on."""
    quality = LinkQuality(latency_s=(0.3, 0.3), spike_chance=0.0, split_chance=0.0)
    cluster.sim.network.set_quality(CLIENT, broker.host.address, quality)


async def brokers_of_eight(p: Producer) -> set[str]:
    """The brokers that the next sends go to; there are eight queues."""
    return {(await p.send("T", b"hi")).queue.broker_name for _ in range(8)}


@pytest.fixture
def two(cluster: FakeCluster, broker: FakeBroker, other: FakeBroker) -> list[FakeBroker]:
    for each in (broker, other):
        each.create("T", 4)
    return [broker, other]


@pytest.mark.parametrize("jump_ms", [0, -3_600_000, 3_600_000])
def test_a_slow_broker_is_avoided_for_its_time_on_the_loops_clock(
    cluster: FakeCluster, two: list[FakeBroker], jump_ms: int
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True) as p:
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}
            slow_down(cluster, two[0])
            await p.send("T", b"slow", queue=queue(0))
            cluster.client.clock_ahead_ms += jump_ms
            assert await brokers_of_eight(p) == {"broker-b"}
            await asyncio.sleep(29)
            assert await brokers_of_eight(p) == {"broker-b"}
            await asyncio.sleep(1)
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send)


def test_without_that_option_a_slow_broker_has_its_turn(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            slow_down(cluster, two[0])
            await p.send("T", b"slow", queue=queue(0))
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send)


def test_a_broker_that_did_not_answer_is_avoided_for_ten_minutes(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True, retries=0) as p:
            two[0].script[SEND] = [SILENCE]
            with pytest.raises(CallTimeout):
                await p.send("T", b"lost", queue=queue(0), timeout_ms=100)
            await asyncio.sleep(595)
            assert await brokers_of_eight(p) == {"broker-b"}
            await asyncio.sleep(5)
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send, within_s=1000)


def test_a_retry_goes_to_a_slow_broker_rather_than_to_the_one_that_failed(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    """All are avoided then. The failing broker got all tries if its queues were next in turn."""

    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True) as p:
            slow_down(cluster, two[1])
            await p.send("T", b"slow", queue=MessageQueue("T", "broker-b", 0))
            two[0].script[SEND] = [ResponseCode.SYSTEM_ERROR] * 9
            assert await brokers_of_eight(p) == {"broker-b"}

    cluster.run(send)


@pytest.mark.parametrize("code", sorted(RETRIED_CODES))
def test_a_broker_that_refused_a_send_is_avoided_though_it_was_quick(
    cluster: FakeCluster, two: list[FakeBroker], code: int
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True, retries=0) as p:
            two[0].script[SEND] = [code]
            with pytest.raises(ResponseError):
                await p.send("T", b"refused", queue=queue(0))
            await asyncio.sleep(599)
            assert await brokers_of_eight(p) == {"broker-b"}
            await asyncio.sleep(1)
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send, within_s=1000)


def test_a_refusal_that_is_the_messages_fault_says_nothing_against_the_broker(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True) as p:
            two[0].script[SEND] = [ResponseCode.MESSAGE_ILLEGAL]
            with pytest.raises(ResponseError):
                await p.send("T", b"refused", queue=queue(0))
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send)


def test_when_all_brokers_are_avoided_the_least_bad_one_gets_the_messages(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True, retries=0) as p:
            two[0].script[SEND] = [ResponseCode.SYSTEM_BUSY]
            two[1].script[SEND] = [SILENCE]
            for name in ("broker-a", "broker-b"):
                with pytest.raises((ResponseError, CallTimeout)):
                    await p.send("T", b"hi", queue=MessageQueue("T", name, 0), timeout_ms=200)
            assert await brokers_of_eight(p) == {"broker-a"}

    cluster.run(send)


@pytest.mark.parametrize("after_s", [0.04, 1.0, 2.9])
def test_a_cancelled_send_says_nothing_about_its_broker(
    cluster: FakeCluster, two: list[FakeBroker], after_s: float
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True) as p:
            await p.send("T", b"hi", queue=queue(0))
            two[0].script[SEND] = [SILENCE]
            sending = asyncio.create_task(p.send("T", b"cancelled", queue=queue(0)))
            await asyncio.sleep(after_s)
            sending.cancel()
            await asyncio.wait([sending])
            assert await brokers_of_eight(p) == {"broker-a", "broker-b"}

    cluster.run(send)


def test_a_cancelled_send_does_not_excuse_a_broker_that_is_avoided(
    cluster: FakeCluster, two: list[FakeBroker]
) -> None:
    async def send() -> None:
        async with producer(cluster, avoid_slow_brokers=True, retries=0) as p:
            two[0].script[SEND] = [ResponseCode.SYSTEM_BUSY, SILENCE]
            with pytest.raises(ResponseError):
                await p.send("T", b"refused", queue=queue(0))
            sending = asyncio.create_task(p.send("T", b"cancelled", queue=queue(0)))
            await asyncio.sleep(0.04)
            sending.cancel()
            await asyncio.wait([sending])
            assert await brokers_of_eight(p) == {"broker-b"}

    cluster.run(send)


def test_a_refusal_stays_the_callers_when_no_time_is_left_for_a_retry(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """A retry after the deadline ended in CallTimeout, and the message might be stored."""

    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"first")
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY]
            with pytest.raises(ResponseError, match="code 2: scripted"):
                await p.send("T", b"hi", timeout_ms=50)

    cluster.run(send)
    assert bodies(broker) == [b"first"]


@pytest.mark.parametrize("since_s", [0.05, 0.35])
def test_a_send_that_is_under_way_when_its_producer_is_closed_ends_then(
    cluster: FakeCluster, broker: FakeBroker, since_s: float
) -> None:
    """It may wait for an answer, or for its next try."""

    async def send() -> None:
        async with producer(cluster) as p:
            await p.queues("T")
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY, SILENCE] * 2
            waiting = asyncio.create_task(p.send("T", b"1", timeout_ms=60_000))
            await asyncio.sleep(since_s)
        closed_s = cluster.sim.now_s
        with pytest.raises((ConnectionClosed, ResponseError)):
            await waiting
        assert cluster.sim.now_s - closed_s < 1

    cluster.run(send)
    assert cluster.nothing_is_left()
