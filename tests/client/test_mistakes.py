"""What users are told who use the client wrongly: the exception, and its whole text.

A text says what is wrong, where, and what to do. The calls are written as users write them, so many
are calls that a type checker refuses.
"""

# mypy: disable-error-code="arg-type, call-arg, call-overload, dict-item, list-item, return-value, no-untyped-def"

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import date
from functools import partial
from typing import Final, TypeAlias

import pytest

import roquet.sync
from roquet import (
    CallTimeout,
    ClientStateError,
    ConfigError,
    ConnectionClosed,
    Consumer,
    Credentials,
    Message,
    MessageError,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    ResponseError,
    RouteNotFound,
    Sql,
    Tls,
    TransactionProducer,
)
from roquet.dev import Cluster

NS: Final = "127.0.0.1:9876"
NOBODY: Final = "127.0.0.1:1"
TOPIC: Final = "orders"
QUEUE: Final = MessageQueue(TOPIC, "dev", 0)
ELSEWHERE: Final = MessageQueue("others", "dev", 0)

Told: TypeAlias = tuple[type[Exception], str]
Answer: TypeAlias = Awaitable[object] | object


def told(kind: type[Exception], text: str) -> Told:
    return kind, text


NOT_ASSIGNED: Final = (
    "is not assigned to this consumer now: `Consumer.assigned()` has the queues that are"
)
START: Final = "it is where a group without a stored offset begins"

# when a client is made

MAKING: Final[list[tuple[Callable[[], object], Told]]] = [
    (
        lambda: Producer("127.0.0.1", "shop"),
        told(ConfigError, "name_server: address '127.0.0.1' is not host:port"),
    ),
    (
        lambda: Producer("", "shop"),
        told(
            ConfigError,
            "name_server is '': give host:port, several separated by semicolons or in a list",
        ),
    ),
    (
        lambda: Producer(None, "shop"),
        told(
            ConfigError,
            "name_server is None: give host:port, several separated by semicolons or in a list",
        ),
    ),
    (
        lambda: Producer(9876, "shop"),
        told(
            ConfigError,
            "name_server is 9876: give host:port, several separated by semicolons or in a list",
        ),
    ),
    (
        lambda: Producer("http://ns:9876", "shop"),
        told(
            ConfigError,
            "name_server is 'http://ns:9876': give host:port of a name server, or the URL of one "
            "address server with its path, as http://host:8080/rocketmq/nsaddr",
        ),
    ),
    (lambda: Producer(NS, ""), told(MessageError, "the group's name is blank")),
    (lambda: Producer(NS, None), told(MessageError, "group is None of type NoneType: give a name")),
    (
        lambda: Producer(NS, "my group"),
        told(MessageError, "group name 'my group': allowed are letters, digits and %|_-"),
    ),
    (
        lambda: Producer(NS, "shop", timeout_ms=0),
        told(ConfigError, "timeout_ms is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", timeout_ms="3"),
        told(ConfigError, "timeout_ms is '3': allowed are 1 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", timeout_ms=2.5),
        told(ConfigError, "timeout_ms is 2.5: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", retries=-1),
        told(ConfigError, "retries is -1: allowed are 0 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", compression="gzip"),
        told(ConfigError, "compression is 'gzip': give 'zlib', 'lz4', 'zstd' or None"),
    ),
    (
        lambda: Producer(NS, "shop", linger_ms=-1),
        told(ConfigError, "linger_ms is -1: allowed are 0 to 3000"),
    ),
    (
        lambda: Producer(NS, "shop", max_in_flight=0),
        told(ConfigError, "max_in_flight is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", batch_size=0),
        told(ConfigError, "batch_size is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Producer(NS, "shop", credentials=("key", "secret")),
        told(ConfigError, "credentials is ('key', 'secret'): give a Credentials, or None"),
    ),
    (lambda: Producer(NS, "shop", tls=True), told(ConfigError, "tls is True: give a Tls, or None")),
    (
        lambda: Producer(NS, "shop", client_id=""),
        told(ConfigError, "client_id is empty: give an id, or None for a random one"),
    ),
    *(
        (
            partial(Producer, NS, "shop", **{name: value}),
            told(ConfigError, f"{name} is {value!r}: give True or False"),
        )
        for name, value in (
            ("avoid_slow_brokers", 3),
            ("retry_another_broker_when_not_stored", 5),
            ("unit_mode", 1),
        )
    ),
    (
        lambda: Producer(NS, "shop", compress_from_size=-1),
        told(ConfigError, "compress_from_size is -1: allowed are 0 to 2147483647"),
    ),
    *(
        (
            partial(Consumer, NS, "billing", TOPIC, **{name: value}),
            told(ConfigError, f"{name} is {value!r}: give True or False"),
        )
        for name, value in (("auto_commit", "no"), ("ordered", "yes"), ("broadcast", None))
    ),
    (
        lambda: TransactionProducer(NS, "shop", 5),
        told(ConfigError, "check is 5: give a coroutine function of a message"),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, auto_offset_reset="earliest"),
        told(
            TypeError,
            "Consumer() got an unexpected keyword argument 'auto_offset_reset': here it is start",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, tags="new"),
        told(
            TypeError,
            "Consumer() got an unexpected keyword argument 'tags': filters stand with the topics, "
            "as in topics={'orders': 'new||paid'}",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, date(2026, 11, 1)),
        told(
            ConfigError,
            "start is datetime.date(2026, 11, 1): give 'earliest', 'latest' or a datetime; "
            + START,
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, uncompressed_max=0),
        told(ConfigError, "uncompressed_max is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Consumer(NS, "billing", {TOPIC: None}),
        told(
            ConfigError,
            "the filter of orders is None: give tags joined by ||, such as 'a||b', or Sql(...)",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, "first"),
        told(ConfigError, "start is 'first': give 'earliest', 'latest' or a datetime; " + START),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, None),
        told(ConfigError, "start is None: give 'earliest', 'latest' or a datetime; " + START),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, 0),
        told(ConfigError, "start is 0: give 'earliest', 'latest' or a datetime; " + START),
    ),
    (
        lambda: Consumer(NS, "billing", None),
        told(
            ConfigError, "topics is None: give a topic, several, or a dict from topics to filters"
        ),
    ),
    (
        lambda: Consumer(NS, "billing", 7),
        told(ConfigError, "topics is 7: give a topic, several, or a dict from topics to filters"),
    ),
    (
        lambda: Consumer(NS, "billing", b"orders"),
        told(
            ConfigError,
            "topics is b'orders': give a topic, several, or a dict from topics to filters",
        ),
    ),
    (lambda: Consumer(NS, "billing", []), told(ConfigError, "a consumer needs at least one topic")),
    (
        lambda: Consumer(NS, "billing", [7]),
        told(MessageError, "topic is 7 of type int: give a name"),
    ),
    (
        lambda: Consumer(NS, "billing", "a b"),
        told(MessageError, "topic name 'a b': allowed are letters, digits and %|_-"),
    ),
    (
        lambda: Consumer(NS, "billing", {TOPIC: ["new", "paid"]}),
        told(
            ConfigError,
            "the filter of orders is ['new', 'paid']: give tags joined by ||, such "
            "as 'a||b', or Sql(...)",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", {TOPIC: Sql("")}),
        told(
            ConfigError,
            "the SQL92 expression for orders is empty: subscribe without it to get all messages",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, batch_size=0),
        told(ConfigError, "batch_size is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, limits=100),
        told(ConfigError, "limits is 100: give a PrefetchLimits, or None"),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, broadcast=True),
        told(
            ConfigError,
            "broadcast=True needs client_id: one per process, the same after each restart",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, offsets_folder="offsets"),
        told(
            ConfigError,
            "offsets_folder needs broadcast=True: otherwise the brokers store the offsets",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, strategy="average"),
        told(
            ConfigError,
            "strategy is 'average': give an object with `name` and `allocate`, for "
            "example roquet.allocation.ConsistentHash()",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC, consume_timeout_ms=0),
        told(ConfigError, "consume_timeout_ms is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: PullConsumer(NS, read_from="slaves"),
        told(
            ConfigError, "read_from is 'slaves': give one of 'master', 'slave', 'slave-only', 'any'"
        ),
    ),
    (
        lambda: PullConsumer(NS, timeout_ms=0),
        told(ConfigError, "timeout_ms is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda: Credentials("", ""),
        told(ConfigError, "credentials: access_key is empty, requests are signed with both keys"),
    ),
    (
        lambda: Tls(verify="yes"),
        told(ConfigError, "TLS: verify is 'yes', allowed are full, ca, none"),
    ),
    (
        lambda: Producer(NS, "shop", tls=Tls("/absent.pem")),
        told(ConfigError, "TLS: CA file /absent.pem: No such file or directory"),
    ),
]


@pytest.mark.parametrize(("mistake", "told"), MAKING)
def test_a_client_that_cannot_be_made(mistake: Callable[[], object], told: Told) -> None:
    with pytest.raises(told[0]) as error:
        mistake()
    assert (type(error.value), str(error.value)) == told


# before the start

BEFORE: Final[list[tuple[Callable[[], Awaitable[object]], Told]]] = [
    (
        lambda: Producer(NS, "shop").send(TOPIC, b"x"),
        told(
            ClientStateError,
            "this Producer was not started: use `async with Producer(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC).get(),
        told(
            ClientStateError,
            "this Consumer was not started: use `async with Consumer(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC).get_many(),
        told(
            ClientStateError,
            "this Consumer was not started: use `async with Consumer(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: Consumer(NS, "billing", TOPIC).run(print),
        told(
            ClientStateError,
            "this Consumer was not started: use `async with Consumer(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: iterate(Consumer(NS, "billing", TOPIC)),
        told(
            ClientStateError,
            "this Consumer was not started: use `async with Consumer(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: PullConsumer(NS).queues(TOPIC),
        told(
            ClientStateError,
            "this PullConsumer was not started: use `async with "
            "PullConsumer(...)`, or `await client.start()`",
        ),
    ),
    (
        lambda: roquet.connect(NS).send(TOPIC, b"x"),
        told(
            ClientStateError,
            "this Client was not started: use `async with roquet.connect(...)`, or "
            "`await client.start()`",
        ),
    ),
    (
        lambda: Producer(NOBODY, "shop").start(),
        told(ConnectionClosed, "cannot connect to 127.0.0.1:1: Connection refused"),
    ),
    (
        lambda: Consumer(NOBODY, "billing", TOPIC).start(),
        told(ConnectionClosed, "cannot connect to 127.0.0.1:1: Connection refused"),
    ),
    (
        lambda: PullConsumer(NOBODY).start(),
        told(ConnectionClosed, "cannot connect to 127.0.0.1:1: Connection refused"),
    ),
    (
        lambda: roquet.connect(NOBODY).start(),
        told(ConnectionClosed, "cannot connect to 127.0.0.1:1: Connection refused"),
    ),
    (
        lambda: Producer("a..b:9876", "shop").start(),
        told(ConnectionClosed, "cannot connect to a..b:9876: 'a..b' is not a host name"),
    ),
]


@pytest.mark.parametrize(("mistake", "told"), BEFORE)
async def test_a_client_that_does_not_run(
    mistake: Callable[[], Awaitable[object]], told: Told
) -> None:
    await is_told(mistake, told)


async def is_told(mistake: Callable[[], Answer], told: Told) -> None:
    with pytest.raises(told[0]) as error:
        await answer_of(mistake)
    assert (type(error.value), str(error.value)) == told


async def answer_of(call: Callable[[], Answer]) -> object:
    answer = call()
    return await asyncio.wait_for(answer, 20) if isinstance(answer, Awaitable) else answer


BLOCKING: Final[list[tuple[Callable[[], object], Told]]] = [
    (
        lambda: roquet.sync.Producer(NS, "shop").send(TOPIC, b"x"),
        told(
            ClientStateError,
            "this Producer was not started: use `with Producer(...)`, or `client.start()`",
        ),
    ),
    (
        lambda: roquet.sync.Consumer(NS, "billing", TOPIC).get(),
        told(
            ClientStateError,
            "this Consumer was not started: use `with Consumer(...)`, or `client.start()`",
        ),
    ),
    (
        lambda: roquet.sync.Producer("127.0.0.1", "shop"),
        told(ConfigError, "name_server: address '127.0.0.1' is not host:port"),
    ),
    (
        lambda: roquet.sync.Producer(NOBODY, "shop").start(),
        told(ConnectionClosed, "cannot connect to 127.0.0.1:1: Connection refused"),
    ),
]


@pytest.mark.parametrize(("mistake", "told"), BLOCKING)
def test_the_blocking_client_tells_the_same(mistake: Callable[[], object], told: Told) -> None:
    with pytest.raises(told[0]) as error:
        mistake()
    assert (type(error.value), str(error.value)) == told


async def iterate(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


# with a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic(TOPIC, queues=4)
        yield running


SENDS: Final[list[tuple[Callable[[Producer], Answer], Told]]] = [
    (
        lambda producer: producer.start(),
        told(
            ClientStateError,
            "this Producer was started before: create a new one, as a client "
            "cannot be started again",
        ),
    ),
    (
        lambda producer: producer.send(TOPIC, "x"),
        told(MessageError, "body is of type str: give bytes (text.encode())"),
    ),
    (
        lambda producer: producer.send(TOPIC, {"id": 1}),
        told(MessageError, "body is of type dict: give bytes (encode the value first)"),
    ),
    (
        lambda producer: producer.send(TOPIC, None),
        told(MessageError, "a message to orders has no body: give bytes, at least one"),
    ),
    (
        lambda producer: producer.send(TOPIC),
        told(MessageError, "a message to orders has no body: give bytes, at least one"),
    ),
    (
        lambda producer: producer.send(TOPIC, b""),
        told(MessageError, "a message needs a body of at least one byte"),
    ),
    (
        lambda producer: producer.send(TOPIC, bytes(5 << 20)),
        told(MessageError, "message to orders: body of 5242880 bytes, allowed are 4194304"),
    ),
    (lambda producer: producer.send("", b"x"), told(MessageError, "the topic's name is blank")),
    (
        lambda producer: producer.send("a b", b"x"),
        told(MessageError, "topic name 'a b': allowed are letters, digits and %|_-"),
    ),
    (
        lambda producer: producer.send(None, b"x"),
        told(
            MessageError,
            "topic is None of type NoneType: give a topic's name, or a Message without a body",
        ),
    ),
    (
        lambda producer: producer.send("a" * 200, b"x"),
        told(
            MessageError,
            "topic name of 200 characters, allowed are 127: "
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...",
        ),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", properties={"price": 1}),
        told(MessageError, "property 'price' is 1 of type int: give a text"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", properties={1: "price"}),
        told(MessageError, "a name of properties is 1 of type int: give a text"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", properties=[("price", "1")]),
        told(MessageError, "properties is [('price', '1')] of type list: give a dict of texts"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", properties={"KEYS": "o-1"}),
        told(MessageError, "property KEYS belongs to the protocol; use another name"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", keys=7),
        told(MessageError, "keys is 7 of type int: give a text, or a tuple of texts"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", keys="o-1 o-2"),
        told(
            MessageError,
            "keys has 'o-1 o-2': a blank separates keys, so a key has none, and "
            "one character at least; give several keys as a tuple",
        ),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", tags=["new"]),
        told(MessageError, "tags is ['new'] of type list: give one text, or None"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", tags="new||paid"),
        told(
            MessageError,
            "tags is 'new||paid': no filter selects a tag with || in it or a blank "
            "at an end, because || separates the tags of a filter; a message has "
            "one tag",
        ),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", delay_level=-1),
        told(MessageError, "delay_level is -1: 0 is none, 1 the shortest delay"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", delay_level="10s"),
        told(MessageError, "delay_level is '10s' of type str: give a number from 0 to 2147483647"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", timeout_ms=0),
        told(CallTimeout, "the send to topic orders was not sent: its 0 ms are over"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", queue=0),
        told(MessageError, "queue is 0 of type int: give a MessageQueue"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", queue=ELSEWHERE),
        told(MessageError, "queue others@dev:0 is not one of topic orders"),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", queue=lambda queues: 0),
        told(
            MessageError,
            "queue: the function returned 0 for a message to orders: it must "
            "return one of the queues that it is given",
        ),
    ),
    (
        lambda producer: producer.send(TOPIC, b"x", sharding_key=7),
        told(MessageError, "sharding_key is 7 of type int: give a text, or None"),
    ),
    (
        lambda producer: producer.send(Message(TOPIC, b"x"), tags="new"),
        told(
            MessageError,
            "a Message to orders is sent together with tags: make these part of "
            "the Message, or give a topic in place of it",
        ),
    ),
    (
        lambda producer: producer.send(Message(TOPIC, b"x"), b"y"),
        told(
            MessageError,
            "a Message to orders is sent together with body: make these part of "
            "the Message, or give a topic in place of it",
        ),
    ),
    *(
        (
            lambda producer, name=name: producer.send(TOPIC, b"x", **{name: "5"}),
            told(TypeError, f"send() got an unexpected keyword argument '{name}'{advice}"),
        )
        for name, advice in (
            ("timeout", ". Did you mean 'timeout_ms'?"),
            ("key", ". Did you mean 'keys'?"),
            ("delay", ". Did you mean 'delay_level'?"),
            ("headers", ""),
        )
    ),
    (
        lambda producer: producer.send_one_way(TOPIC, b"x", timeout_ms=5),
        told(TypeError, "send_one_way() got an unexpected keyword argument 'timeout_ms'"),
    ),
    (
        lambda producer: producer.request(TOPIC, b"x", tag="a"),
        told(TypeError, "request() got an unexpected keyword argument 'tag'. Did you mean 'tags'?"),
    ),
    *(
        (send, told(ConfigError, "timeout_ms is '3': allowed are 0 to 2147483647"))
        for send in (
            lambda producer: producer.send(TOPIC, b"x", timeout_ms="3"),
            lambda producer: producer.send_batch([Message(TOPIC, b"x")], timeout_ms="3"),
            lambda producer: producer.reply(None, b"x", timeout_ms="3"),
        )
    ),
    (
        lambda producer: producer.send_batch([]),
        told(MessageError, "a batch needs at least one message"),
    ),
    (
        lambda producer: producer.send_batch(Message(TOPIC, b"x")),
        told(
            MessageError,
            "messages is Message(topic...t_stored=True) of type Message: give a list of Messages",
        ),
    ),
    (
        lambda producer: producer.send_batch([b"x"]),
        told(MessageError, "message is b'x' of type bytes: give a Message"),
    ),
    (
        lambda producer: producer.send_batch([Message(TOPIC, b"x"), Message("others", b"x")]),
        told(MessageError, "a batch has one topic, this one has orders and others"),
    ),
    (
        lambda producer: producer.send_batch([Message(TOPIC, b"x", delay_level=1)]),
        told(MessageError, "a delayed message cannot be part of a batch"),
    ),
    (
        lambda producer: producer.request("nobody-answers", "x"),
        told(MessageError, "body is of type str: give bytes (text.encode())"),
    ),
    (
        lambda producer: producer.request(Message("nobody-answers", b"x"), 100),
        told(
            MessageError,
            "a Message to nobody-answers is sent together with body: make these part of the "
            "Message, or give a topic in place of it",
        ),
    ),
    (
        lambda producer: producer.request("nobody-answers", b"x", timeout_ms="1"),
        told(ConfigError, "timeout_ms is '1': allowed are 0 to 2147483647"),
    ),
    (
        lambda producer: producer.request("nobody-answers", b"x", timeout_ms=100),
        told(CallTimeout, "no reply to the request to topic nobody-answers within 100 ms"),
    ),
]


@pytest.mark.parametrize(("mistake", "told"), SENDS)
async def test_a_send_that_cannot_be(
    mistake: Callable[[Producer], Answer], told: Told, cluster: Cluster
) -> None:
    async with Producer(cluster.name_server, "shop") as producer:
        await is_told(lambda: mistake(producer), told)


def books():
    pass


async def books_in(message, session):
    pass


async def yields(message):
    yield message


CONSUMING: Final[list[tuple[Callable[[Consumer], Answer], Told]]] = [
    (
        lambda consumer: consumer.start(),
        told(
            ClientStateError,
            "this Consumer was started before: create a new one, as a client "
            "cannot be started again",
        ),
    ),
    (
        lambda consumer: consumer.get(timeout_ms="5"),
        told(ConfigError, "timeout_ms is '5': allowed are 0 to 2147483647"),
    ),
    (
        lambda consumer: consumer.get(timeout_ms=-1),
        told(ConfigError, "timeout_ms is -1: allowed are 0 to 2147483647"),
    ),
    (lambda consumer: consumer.get(timeout_ms=1), told(CallTimeout, "no message within 1 ms")),
    (
        lambda consumer: consumer.get_many(0),
        told(ConfigError, "max_messages is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda consumer: consumer.get_many(timeout_ms=-1),
        told(ConfigError, "timeout_ms is -1: allowed are 0 to 2147483647"),
    ),
    (
        lambda consumer: consumer.batch(0).__aenter__(),
        told(ConfigError, "max_messages is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda consumer: consumer.run(print, concurrency=0),
        told(ConfigError, "concurrency is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda consumer: consumer.run(None),
        told(ConfigError, "handler is None: give a function of a message"),
    ),
    (
        lambda consumer: consumer.run(books),
        told(
            ConfigError,
            "handler books() cannot be called with a message alone: too many positional arguments",
        ),
    ),
    (
        lambda consumer: consumer.run(books_in),
        told(
            ConfigError,
            "handler books_in(message, session) cannot be called with a message alone: "
            "missing a required argument: 'session'",
        ),
    ),
    (
        lambda consumer: consumer.run(yields),
        told(
            ConfigError,
            "handler yields has a yield, so a call of it does nothing: give a function without",
        ),
    ),
    (
        lambda consumer: consumer.pause([QUEUE]),
        told(
            ConfigError,
            "queue is [MessageQueue(...', queue_id=0)] of type list: give a MessageQueue; several "
            "are several arguments, as in pause(*queues)",
        ),
    ),
    (
        lambda consumer: consumer.seek(ELSEWHERE, 0),
        told(ConfigError, "queue others@dev:0 " + NOT_ASSIGNED),
    ),
    (
        lambda consumer: consumer.seek(max(consumer.assigned()), "first"),
        told(
            ConfigError,
            "where is 'first': give 'earliest', 'latest', a datetime or an offset "
            "of 0 to 9223372036854775807",
        ),
    ),
    (
        lambda consumer: consumer.seek(max(consumer.assigned()), -1),
        told(
            ConfigError,
            "where is -1: give 'earliest', 'latest', a datetime or an offset of 0 "
            "to 9223372036854775807",
        ),
    ),
    (
        lambda consumer: consumer.pause(ELSEWHERE),
        told(ConfigError, "queue others@dev:0 " + NOT_ASSIGNED),
    ),
    (
        lambda consumer: consumer.pause(TOPIC),
        told(
            ConfigError,
            "queue is 'orders' of type str: give a MessageQueue; several are several arguments, "
            "as in pause(*queues)",
        ),
    ),
    (
        lambda consumer: consumer.position(ELSEWHERE),
        told(ConfigError, "queue others@dev:0 " + NOT_ASSIGNED),
    ),
    (
        lambda consumer: consumer.commit({ELSEWHERE: 3}),
        told(ConfigError, "queue others@dev:0 " + NOT_ASSIGNED),
    ),
]


async def test_wrong_uses_of_a_consumer(cluster: Cluster) -> None:
    """One consumer for all of them: to join a group takes longer than they do."""
    async with Consumer(cluster.name_server, "billing", TOPIC, "earliest") as consumer:
        for mistake, expected in CONSUMING:
            await is_told(partial(mistake, consumer), expected)
    for use in (
        consumer.get,
        lambda: iterate(consumer),
        consumer.assigned,
        consumer.paused,
        consumer.subscriptions,
    ):
        await is_told(use, (ClientStateError, "this Consumer was closed: create a new one"))


PULLING: Final[list[tuple[Callable[[PullConsumer], Answer], Told]]] = [
    (
        lambda reader: reader.pull(TOPIC, 0),
        told(MessageError, "queue is 'orders' of type str: give a MessageQueue"),
    ),
    (
        lambda reader: reader.pull(QUEUE, "0"),
        told(
            MessageError,
            "offset is '0' of type str: give a number from -9223372036854775808 to "
            "9223372036854775807",
        ),
    ),
    (
        lambda reader: reader.pull(QUEUE, 0, max_messages=0),
        told(MessageError, "max_messages is 0: allowed are 1 to 2147483647"),
    ),
    (
        lambda reader: reader.pull(QUEUE, 0, tags=["new"]),
        told(
            ConfigError,
            "the filter of orders is ['new']: give tags joined by ||, such as 'a||b', or Sql(...)",
        ),
    ),
    (
        lambda reader: reader.queues("a b"),
        told(MessageError, "topic name 'a b': allowed are letters, digits and %|_-"),
    ),
    (
        lambda reader: reader.committed("a b", QUEUE),
        told(MessageError, "group name 'a b': allowed are letters, digits and %|_-"),
    ),
    (
        lambda reader: reader.commit("billing", QUEUE, "0"),
        told(
            MessageError,
            "offset is '0' of type str: give a number from -9223372036854775808 to "
            "9223372036854775807",
        ),
    ),
    (
        lambda reader: reader.offset_at(QUEUE, "now"),
        told(
            MessageError,
            "when is 'now' of type str: give a datetime, or milliseconds since 1970",
        ),
    ),
]


@pytest.mark.parametrize(("mistake", "told"), PULLING)
async def test_a_pull_that_cannot_be(
    mistake: Callable[[PullConsumer], Answer], told: Told, cluster: Cluster
) -> None:
    async with PullConsumer(cluster.name_server) as reader:
        await is_told(lambda: mistake(reader), told)


@pytest.mark.parametrize("count", [1, 2])
async def test_a_broker_is_no_name_server(cluster: Cluster, count: int) -> None:
    broker = cluster.address()
    text = (
        f"name_server: {broker} is no name server but a broker, as it seems: "
        "give the name server's address, often port 9876; it knows the brokers"
    )
    config = [broker] * count
    async with Producer(config, "shop") as producer:
        await is_told(lambda: producer.send(TOPIC, b"x"), (ConfigError, text))
    await is_told(Consumer(config, "billing", TOPIC).start, (ConfigError, text))
    async with PullConsumer(config) as reader:
        await is_told(lambda: reader.queues(TOPIC), (ConfigError, text))


async def test_what_the_cluster_refuses_names_the_one_who_refused(cluster: Cluster) -> None:
    async with PullConsumer(cluster.name_server) as reader:
        await is_told(
            lambda: reader.queues("nothing-here"),
            (
                RouteNotFound,
                f"no broker has topic nothing-here (name servers asked: {cluster.name_server}): "
                "create it, start its brokers, or check the addresses",
            ),
        )
        with pytest.raises(ResponseError) as refused:
            await reader.pull(MessageQueue(TOPIC, "dev", 99), 0)
        broker = refused.value.address
        assert str(refused.value) == (
            f"{broker} answered code 1: topic {TOPIC} has no queue 99: it has 4 read queues"
        )
        with pytest.raises(ResponseError) as refused:
            await reader.pull(QUEUE, 0, tags=Sql("a >"))
        assert str(refused.value) == (
            f"{broker} answered code 23: filter expression, position 4: "
            "expected a value, a name, NOT, +, - or (, found the end"
        )


async def test_a_message_that_no_consumer_delivered_is_not_settled(cluster: Cluster) -> None:
    async with Producer(cluster.name_server, "shop") as producer:
        result = await producer.send("seen", b"one")
    async with PullConsumer(cluster.name_server) as reader:
        (message,) = (await reader.pull(result.queue, 0)).messages
    assert isinstance(message, ReceivedMessage)
    await is_told(
        message.ack,
        (
            MessageError,
            f"ack() of message {message.message_id}: only messages of a Consumer are settled; "
            "who pulls commits offsets with PullConsumer.commit",
        ),
    )


async def test_a_client_of_another_event_loop_points_to_the_blocking_one(cluster: Cluster) -> None:
    async with Producer(cluster.name_server, "shop") as producer:

        def from_a_thread() -> None:
            asyncio.run(producer.send(TOPIC, b"x"))

        await is_told(
            lambda: asyncio.to_thread(from_a_thread),
            (
                ClientStateError,
                "this Producer was started in another event loop: use it only in that one, or "
                "`roquet.sync` from threads and from code without event loop",
            ),
        )
