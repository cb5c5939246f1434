"""Requests that go through a broker to somebody else: to consumers for administrators, replies to
who asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import Message
from tests.interop import wire
from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    Client,
    JavaClients,
    Version,
    require_java,
    start_driver,
    wait_until,
)
from tests.interop.processes import SECONDS, SEND_MS_MAX
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic

pytestmark = pytest.mark.interop

QUICK: dict[str, str | int] = {"transactionTimeOut": 500, "transactionCheckInterval": 1000}
OFTEN: dict[str, str | int] = {"flushConsumerOffsetInterval": 500}
GET_CONSUMER_STATUS = 223
"""mqadmin 4.9.7 has no command for it."""
GET_CONSUMER_RUNNING_INFO = 307
MEMBER = "member-of-the-group"
API = ("--api-timeout", SEND_MS_MAX)


@pytest.fixture(scope="module")
def broker() -> Iterator[RoquetBroker]:
    require_java()
    with (
        RoquetNameServer() as server,
        RoquetBroker(server.address, properties=OFTEN | QUICK) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def apaches() -> Iterator[ApacheBroker]:
    require_java()
    with ApacheNameServer() as server, ApacheBroker(server.address, properties=QUICK) as running:
        yield running


def mqadmin(clients: JavaClients, broker: RoquetBroker, *words: object) -> str:
    """What the command printed; it did not complain."""
    (line,) = clients["4.9.7-json"].run("admin", broker.namesrv, *words).check()
    assert "Exception" not in line["err"], line["err"]
    return str(line["out"])


def produce(
    clients: JavaClients, broker: RoquetBroker, topic: str, count: int, *options: object
) -> list[dict[str, Any]]:
    words = ("produce", broker.namesrv, topic, count, *PATIENT, *options)
    return clients["4.9.7-json"].run(*words).check()


def consumer(broker: RoquetBroker, topic: str, group: str, version: Version = Version.V4) -> Client:
    """A Java consumer that takes whatever comes, for as long as it is not killed."""
    words = (
        "consume",
        broker.namesrv,
        topic,
        group,
        1_000_000,
        600,
        "--instance",
        MEMBER,
        "--heartbeat",
        1000,
    )
    return start_driver(version, *words)


def client_id(broker: RoquetBroker, group: str) -> str:
    """Of the group's one member."""
    found: list[str] = []

    def is_known() -> bool:
        found[:] = re.findall(
            rb'"clientId":"([^"]+)"', wire.ask(broker.address, 203, {"consumerGroup": group}).body
        )
        return len(found) == 1

    wait_until(is_known, f"a member of {group}")
    return bytes(found[0]).decode()  # type: ignore[arg-type]


def progress(broker: RoquetBroker, topic: str, group: str) -> int:
    """Of the topic's only queue."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    return int(
        (wire.ask(broker.address, 14, fields).header.get("extFields") or {}).get("offset", -1)
    )


# administrators and consumers


@pytest.mark.parametrize("version", Version)
def test_mqadmin_asks_a_java_consumer_what_it_does(
    version: Version, broker: RoquetBroker, clients: JavaClients
) -> None:
    topic, group = f"Status-{version[0]}", f"G-status-{version[0]}"
    create_topic(broker, topic, 1)
    sent = produce(clients, broker, topic, 3)
    with consumer(broker, topic, group, version) as java:
        java.wait_lines(3)
        member = client_id(broker, group)
        said = mqadmin(clients, broker, "consumerStatus", "-g", group, "-i", member)
        assert re.search(rf"{topic}\s", said), said
        said = mqadmin(clients, broker, "consumerStatus", "-g", group)
        assert member in said

        again = sent[1]["offsetMsgId"]
        said = mqadmin(clients, broker, "queryMsgById", "-i", again, "-g", group, "-d", member)
        assert "CR_SUCCESS" in said
        assert java.wait_lines(4)[3]["body"] == "message-1"

        wait_until(lambda: progress(broker, topic, group) == 3, "the group's progress")
        told = wire.ask(broker.address, GET_CONSUMER_STATUS, {"group": group, "topic": topic})
        assert re.search(rf'"{member}":{{{{[^}}]*"topic":"{topic}"}}:3}}', told.body.decode()), told


@pytest.mark.parametrize("version", Version)
def test_mqadmin_sets_a_group_back_that_is_online(
    version: Version, broker: RoquetBroker, clients: JavaClients
) -> None:
    topic, group = f"Reset-{version[0]}", f"G-reset-{version[0]}"
    create_topic(broker, topic, 1)
    produce(clients, broker, topic, 3, "--body", "old-")
    time.sleep(1)
    produce(clients, broker, topic, 3, "--body", "new-")
    with consumer(broker, topic, group, version) as java:
        between_ms = min(
            line["storeTimestamp"] for line in java.wait_lines(6) if line["body"].startswith("new-")
        )
        wait_until(lambda: progress(broker, topic, group) == 6, "the group's progress")
        said = mqadmin(
            clients, broker, "resetOffsetByTime", "-g", group, "-t", topic, "-s", between_ms
        )
        assert re.search(rf"{broker_name(broker)}\s+0\s+3", said), said
        assert sorted(line["body"] for line in java.wait_lines(9)[6:]) == [
            "new-0",
            "new-1",
            "new-2",
        ]
        wait_until(lambda: progress(broker, topic, group) == 6, "the group's progress")
    wait_until(
        lambda: wire.ask(broker.address, 203, {"consumerGroup": group}).code != 0,
        "nobody in the group",
    )
    mqadmin(clients, broker, "resetOffsetByTime", "-g", group, "-t", topic, "-s", between_ms)
    assert progress(broker, topic, group) == 3, "offline: the tool does it itself"
    mqadmin(clients, broker, "skipAccumulatedMessage", "-g", group, "-t", topic, "-f", "true")
    assert progress(broker, topic, group) == 6
    mqadmin(
        clients,
        broker,
        "cloneGroupOffset",
        "-s",
        group,
        "-d",
        f"{group}-copy",
        "-t",
        topic,
        "-o",
        "true",
    )
    assert progress(broker, topic, f"{group}-copy") == 6


def broker_name(broker: RoquetBroker) -> str:
    return str(broker.properties["brokerName"])


def test_mqadmin_and_our_consumer(broker: RoquetBroker, clients: JavaClients) -> None:
    """It is asked, given a message to consume, and set back."""
    topic, group = "OurConsumer", "G-ours"
    create_topic(broker, topic, 1)
    sent = produce(clients, broker, topic, 3)
    got: list[str] = []

    async def consume() -> None:
        async with Consumer(broker.namesrv, group, topic, "earliest") as ours:
            async for message in ours:
                got.append(message.body.decode())  # noqa: PERF401 - seen while it goes on

    async def administrate() -> None:
        consuming = asyncio.create_task(consume())
        await until(lambda: len(got) == 3)
        member = await asyncio.to_thread(client_id, broker, group)

        async def tool(*words: object) -> str:
            return await asyncio.to_thread(mqadmin, clients, broker, *words)

        said = await tool("consumerStatus", "-g", group, "-i", member)
        assert re.search(rf"{topic}\s", said), said
        id_ = sent[1]["offsetMsgId"]
        said = await tool("queryMsgById", "-i", id_, "-g", group, "-d", member)
        assert "CR_SUCCESS" in said
        assert got[3:] == ["message-1"]
        await until(lambda: progress(broker, topic, group) == 3)
        await tool("resetOffsetByTime", "-g", group, "-t", topic, "-s", 0)
        await until(lambda: len(got) == 7)
        assert got[4:] == ["message-0", "message-1", "message-2"]
        consuming.cancel()

    asyncio.run(administrate())


@pytest.mark.parametrize("is_ordered", [False, True])
def test_mqadmin_sees_our_consumer_as_it_is(
    is_ordered: bool, broker: RoquetBroker, clients: JavaClients
) -> None:
    topic, group = f"Told-{is_ordered}", f"G-told-{is_ordered}"
    create_topic(broker, topic, 1)
    sent = produce(clients, broker, topic, 5)

    async def administrate() -> None:
        async with Consumer(broker.namesrv, group, topic, "earliest", ordered=is_ordered) as ours:
            working = asyncio.create_task(consume(ours), name="the application")
            member = await asyncio.to_thread(client_id, broker, group)

            async def tool(*words: object) -> str:
                return await asyncio.to_thread(mqadmin, clients, broker, *words)

            async with asyncio.timeout(SECONDS):
                await begun.wait()
            said = await tool("consumerStatus", "-g", group, "-i", member, "-s")
            shown = dict(re.findall(r"^(\w+) +: (\S+)$", said, re.MULTILINE))
            assert shown["PROP_CONSUMEORDERLY"] == str(is_ordered).lower(), said
            assert shown["PROP_NAMESERVER_ADDR"] == f"{broker.namesrv};"
            assert shown["PROP_CLIENT_VERSION"].startswith("V4_9")
            assert shown["allocateMessageQueueStrategy"] == "AVG"
            assert abs(int(shown["PROP_CONSUMER_START_TIMESTAMP"]) / 1000 - time.time()) < SECONDS
            assert f"locked={str(is_ordered).lower()}" in said
            assert "task the application" in said, "its stack"
            table = await asyncio.to_thread(running_info, broker, group, member)
            (queue,) = [of for key, of in table["mqTable"].items() if f'"{topic}"' in key]
            assert (queue["cachedMsgCount"], queue["transactionMsgCount"]) == (
                (4, 1) if is_ordered else (5, 0)
            )
            assert (queue["lastLockTimestamp"] > 0) is is_ordered
            said = await tool("consumerConnection", "-g", group)
            assert "PYTHON" in said
            assert "CONSUME_PASSIVELY" in said
            release.set()
            directly = ("queryMsgById", "-i", sent[1]["offsetMsgId"], "-g", group, "-d", member)
            said = await tool(*directly)
            assert "CR_SUCCESS" in said, said
            assert f"order={str(is_ordered).lower()}" in said, said
            working.cancel()

    async def consume(ours: Consumer) -> None:
        async for message in ours:
            async with message:
                begun.set()
                await release.wait()

    begun, release = asyncio.Event(), asyncio.Event()
    asyncio.run(administrate())


def running_info(broker: RoquetBroker, group: str, member: str) -> Any:
    fields = {"consumerGroup": group, "clientId": member, "jstackEnable": "false"}
    return load(wire.ask(broker.address, GET_CONSUMER_RUNNING_INFO, fields).body)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.1)


# requests and replies


@pytest.mark.parametrize("kind", JavaClients.KINDS)
def test_java_clients_reply_to_each_other(
    kind: str, broker: RoquetBroker, clients: JavaClients
) -> None:
    """On a busy machine a client's own timer may hold up the heartbeat before its first request: no
    broker knows whom to give that answer. Then another one has to do.
    """
    version = Version(kind.partition("-")[0])
    options = ["-Drocketmq.serialize.type=ROCKETMQ"] if kind.endswith("binary") else []
    for number in range(3):
        topic = f"Ask-{kind.replace('.', '-')}-{number}"
        create_topic(broker, topic, 2)
        words = (
            "reply",
            broker.namesrv,
            topic,
            f"G-{topic}",
            3,
            SECONDS,
            "--group",
            f"R-{topic}",
            *API,
        )
        with start_driver(version, *words, java_options=options) as replier:
            replier.wait_started()
            asked = clients[kind].run(
                "request",
                broker.namesrv,
                topic,
                3,
                "--timeout",
                10_000,
                "--group",
                f"P-{topic}",
                *API,
            )
            if asked.status == 0:
                assert {line["sendStatus"] for line in replier.finish().check()} == {"SEND_OK"}
                break
    assert [line["body"] for line in asked.check()] == ["MESSAGE-0", "MESSAGE-1", "MESSAGE-2"]


def ask_ours_reply_java(namesrv: str, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        async with Producer(namesrv, "P-ours", timeout_ms=SEND_MS_MAX) as producer:
            return [
                (await producer.request(Message(topic, b"ping-%d" % n), timeout_ms=30_000)).body
                for n in range(3)
            ]

    with start_driver(Version.V4, "reply", namesrv, topic, f"G-{topic}", 3, SECONDS) as replier:
        replier.wait_started()
        bodies = asyncio.run(run())
        replier.finish().check()
    return bodies


def ask_java_reply_ours(clients: JavaClients, namesrv: str, topic: str) -> list[str]:
    async def serve(asked: asyncio.Task[list[str]]) -> list[str]:
        async with AsyncExitStack() as stack:
            producer = await stack.enter_async_context(
                Producer(namesrv, "R-ours", timeout_ms=SEND_MS_MAX)
            )
            requests = await stack.enter_async_context(
                Consumer(namesrv, f"G-{topic}", topic, "earliest")
            )
            while not asked.done():
                for request in await requests.get_many(timeout_ms=200):
                    await producer.reply(request, request.body.upper())
        return asked.result()

    def ask() -> list[str]:
        words = ("request", namesrv, topic, 3, "--timeout", 30_000)
        return [line["body"] for line in clients["4.9.7-json"].run(*words).check()]

    async def run() -> list[str]:
        return await serve(asyncio.create_task(asyncio.to_thread(ask)))

    return asyncio.run(run())


def test_our_client_and_java_s_reply_to_each_other_over_our_broker(
    broker: RoquetBroker, clients: JavaClients
) -> None:
    for topic in "AskMixedA", "AskMixedB":
        create_topic(broker, topic, 2)
    assert ask_ours_reply_java(broker.namesrv, "AskMixedA") == [b"PING-0", b"PING-1", b"PING-2"]
    assert ask_java_reply_ours(clients, broker.namesrv, "AskMixedB") == [
        "MESSAGE-0",
        "MESSAGE-1",
        "MESSAGE-2",
    ]


# our client at Apache's broker


def test_our_client_and_java_s_reply_to_each_other_over_apaches_broker(
    apaches: ApacheBroker, clients: JavaClients
) -> None:
    for topic in "AskMixedA", "AskMixedB":
        create_topic(apaches, topic, 2)
    assert ask_ours_reply_java(apaches.namesrv, "AskMixedA") == [b"PING-0", b"PING-1", b"PING-2"]
    assert ask_java_reply_ours(clients, apaches.namesrv, "AskMixedB") == [
        "MESSAGE-0",
        "MESSAGE-1",
        "MESSAGE-2",
    ]


@pytest.mark.parametrize("whose", ["apaches", "broker"])
def test_our_transactions(whose: str, request: pytest.FixtureRequest, clients: JavaClients) -> None:
    at: ApacheBroker | RoquetBroker = request.getfixturevalue(whose)
    namesrv = at.namesrv
    create_topic(at, "OurTx", 2)

    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        """The answer is the body's first word."""
        asked.append(message)
        return TransactionState[message.body.decode().partition(" ")[0]]

    async def send(producer: TransactionProducer) -> None:
        for state in TransactionState:

            async def local(
                message: Message, transaction_id: str, state: TransactionState = state
            ) -> TransactionState:
                return state

            for body in f"{state.name} now", f"{state.name} {'x' * 5000}":
                result = await producer.send_in_transaction(
                    Message("OurTx", body.encode()), local, timeout_ms=20_000
                )
                assert result.confirmed is (state is not TransactionState.UNKNOWN)

        async def unknown(message: Message, transaction_id: str) -> TransactionState:
            return TransactionState.UNKNOWN

        for later in b"COMMIT later", b"ROLLBACK later":
            await producer.send_in_transaction(Message("OurTx", later), unknown, timeout_ms=20_000)

    def is_over() -> bool:
        return len({message.body for message in asked}) == 4 and stored(at.address, "OurTx", 2) == 3

    async def run() -> None:
        async with TransactionProducer(
            namesrv, "P-ours-tx", check, timeout_ms=SEND_MS_MAX
        ) as producer:
            await send(producer)
            await until(is_over)

    asyncio.run(run())
    assert {message.body[:12] for message in asked} == {
        b"UNKNOWN now",
        b"UNKNOWN xxxx",
        b"COMMIT later",
        b"ROLLBACK lat",
    }
    got = (
        clients["4.9.7-json"]
        .run("consume", namesrv, "OurTx", "G-ours-tx", 3, SECONDS, "--linger", 2000)
        .check()
    )
    assert sorted(line["body"][:12] for line in got) == [
        "COMMIT later",
        "COMMIT now",
        "COMMIT xxxxx",
    ]


def stored(address: str, topic: str, queues: int) -> int:
    """How many messages of a topic consumers may have by now."""
    answers = [
        wire.ask(address, 30, {"topic": topic, "queueId": str(queue_id)})
        for queue_id in range(queues)
    ]
    return sum(int(answer.header["extFields"]["offset"]) for answer in answers)
