"""What a transaction producer promises, at a real broker.

See docs/protocol/transactions.md.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.client.received import ReceivedMessage
from roquet.client.send_result import SendStatus
from roquet.client.transactions import (
    CHECKS_AT_ONCE_MAX,
    CHECKS_WAITING_MAX,
    Check,
    CheckBacks,
    Local,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from roquet.common.runtime import Runtime
from roquet.errors import ConfigError, MessageError, ResponseError
from roquet.protocol.headers.transactions import CheckTransactionHeader
from roquet.protocol.records.message import TRACE_TOPIC, Message
from roquet.protocol.records.record import Record, decode
from roquet.transport.connection import Connection
from tests.broker.served import serving
from tests.client.served import NAME_SERVER, Served
from tests.simulation.simulation import Host, Simulation

COMMIT, ROLLBACK, UNKNOWN = TransactionState


class Ledger:
    """What a producer's application knows: the state of each body's transaction, and what was
    asked.
    """

    def __init__(self, **states: TransactionState) -> None:
        self.states = states
        self.asked: list[ReceivedMessage] = []

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self.asked.append(message)
        return self.states[message.body.decode()]


def producer(
    host: Host,
    check: Check,
    *,
    trace: bool = False,
) -> TransactionProducer:
    runtime = Runtime(host.now_ms, host.random)
    client_id = f"{host.address}@test"
    return TransactionProducer(
        NAME_SERVER, "P", check, client_id=client_id, runtime=runtime, trace=trace
    )


def local(state: TransactionState) -> Local:
    async def decide(message: Message, transaction_id: str) -> TransactionState:
        return state

    return decide


def test_a_message_is_delivered_once_its_transaction_is_committed_and_not_before(
    served: Served,
) -> None:
    seen: list[object] = []

    async def book(message: Message, transaction_id: str) -> TransactionState:
        seen.extend((message.body, transaction_id, served.bodies()))
        return COMMIT

    async def run() -> TransactionResult:
        async with producer(served.client, Ledger().check) as p:
            return await p.send_in_transaction(Message("T", b"paid", tags="a", keys="k"), book)

    result = served.run(run)
    assert (result.state, result.confirmed, result.send_result.status) == (
        COMMIT,
        True,
        SendStatus.SEND_OK,
    )
    assert seen == [b"paid", result.transaction_id, []]
    (record,) = served.records("T")
    assert (record.body, record.sys_flag) == (b"paid", 8)
    assert record.properties["UNIQ_KEY"] == result.transaction_id
    assert (record.properties["TAGS"], record.properties["KEYS"]) == ("a", "k")


def test_one_that_is_rolled_back_is_not_and_nobody_asks(served: Served) -> None:
    ledger = Ledger()

    async def run() -> TransactionResult:
        async with producer(served.client, ledger.check) as p:
            result = await p.send_in_transaction(Message("T", b"paid"), local(ROLLBACK))
            await asyncio.sleep(60)
            return result

    assert served.run(run).confirmed
    assert (served.bodies(), ledger.asked) == ([], [])


@pytest.mark.parametrize(
    ("later", "delivered"), [(COMMIT, ["paid"]), (ROLLBACK, []), (UNKNOWN, [])]
)
def test_an_unknown_one_is_asked_for(
    served: Served, later: TransactionState, delivered: list[str]
) -> None:
    ledger = Ledger(paid=later)

    async def run() -> TransactionResult:
        async with producer(served.client, ledger.check) as p:
            result = await p.send_in_transaction(Message("T", b"paid" * 1), local(UNKNOWN))
            await asyncio.sleep(35)
            return result

    result = served.run(run)
    assert not result.confirmed
    assert served.bodies() == delivered
    assert len(ledger.asked) == (3 if later is UNKNOWN else 1)
    asked = ledger.asked[0]
    assert (asked.topic, asked.message_id, asked.queue.topic) == ("T", result.transaction_id, "T")


def test_a_compressed_message_is_asked_for_as_it_was_sent(served: Served) -> None:
    ledger = Ledger(**{"x" * 5000: COMMIT})

    async def run() -> None:
        async with producer(served.client, ledger.check) as p:
            await p.send_in_transaction(Message("T", b"x" * 5000), local(UNKNOWN))
            await asyncio.sleep(15)

    served.run(run)
    assert [message.body for message in ledger.asked] == [b"x" * 5000]
    assert len(served.records("T")) == 1


def test_what_the_application_raises_is_raised_and_the_broker_asks(served: Served) -> None:
    ledger = Ledger(paid=COMMIT)

    async def fail(message: Message, transaction_id: str) -> TransactionState:
        raise RuntimeError("no such account")

    async def run() -> None:
        async with producer(served.client, ledger.check) as p:
            with pytest.raises(RuntimeError, match="no such account"):
                await p.send_in_transaction(Message("T", b"paid"), fail)
            await asyncio.sleep(15)

    served.run(run)
    assert served.bodies() == ["paid"]


def test_plain_functions_decide_as_coroutine_functions_do(served: Served) -> None:
    ledger = Ledger(later=COMMIT)

    async def run() -> None:
        async with producer(
            served.client, lambda message: ledger.states[message.body.decode()]
        ) as p:
            now = await p.send_in_transaction(Message("T", b"now"), lambda *_: COMMIT)
            never = await p.send_in_transaction(Message("T", b"never"), lambda *_: ROLLBACK)
            await p.send_in_transaction(Message("T", b"later"), lambda *_: UNKNOWN)
            assert (now.state, never.state) == (COMMIT, ROLLBACK)
            await asyncio.sleep(15)

    served.run(run)
    assert served.bodies() == ["now", "later"]


def test_a_local_transaction_that_is_no_function_is_refused_before_anything_is_sent(
    served: Served,
) -> None:
    nothing: Any = None

    async def run() -> None:
        async with producer(served.client, Ledger().check) as p:
            with pytest.raises(ConfigError, match="local is None: give a coroutine function"):
                await p.send_in_transaction(Message("T", b"paid"), nothing)

    served.run(run)
    assert served.records("T") == []


def test_a_check_that_fails_leaves_it_open(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(paid=COMMIT)

    async def fail_once(message: ReceivedMessage) -> TransactionState:
        if not ledger.asked:
            ledger.asked.append(message)
            raise RuntimeError("the database is gone")
        return await ledger.check(message)

    async def run() -> None:
        async with producer(served.client, fail_once) as p:
            await p.send_in_transaction(Message("T", b"paid"), local(UNKNOWN))
            await asyncio.sleep(15)
            assert served.bodies() == []
            await asyncio.sleep(10)

    served.run(run)
    assert served.bodies() == ["paid"]
    assert "the database is gone" in caplog.text


def test_without_the_broker_s_full_promise_nothing_is_done_and_all_is_rolled_back(
    sim: Simulation,
) -> None:
    served = Served(sim, brokerRole="SYNC_MASTER")
    called: list[str] = []

    async def book(message: Message, transaction_id: str) -> TransactionState:
        called.append(transaction_id)
        return COMMIT

    async def run() -> TransactionResult:
        async with producer(served.client, Ledger().check) as p:
            return await p.send_in_transaction(Message("T", b"paid"), book)

    result = served.run(run)
    assert (result.send_result.status, result.state) == (SendStatus.SLAVE_NOT_AVAILABLE, ROLLBACK)
    assert (called, served.bodies(), len(serving(served.broker).parts.halves.open)) == ([], [], 0)


def test_the_end_that_a_broker_did_not_hear_of_it_asks_for(served: Served) -> None:
    ledger = Ledger(paid=COMMIT)

    async def book(message: Message, transaction_id: str) -> TransactionState:
        served.broker.host.crash()
        return COMMIT

    async def run() -> TransactionResult:
        async with producer(served.client, ledger.check) as p:
            result = await p.send_in_transaction(Message("T", b"paid"), book)
            served.broker.start()
            await asyncio.sleep(50)
            return result

    served.sim.run_for(15)
    result = served.run(run)
    assert (result.state, result.confirmed) == (COMMIT, False)
    assert served.bodies() in (["paid"], []), "the crash may have taken the half message"
    assert len(ledger.asked) == len(served.bodies())


def leave_open(served: Served) -> None:
    """A producer ends before it knows whether `paid` was paid."""

    async def send() -> None:
        async with producer(served.client, Ledger().check) as p:
            await p.send_in_transaction(Message("T", b"paid"), local(UNKNOWN))

    served.run(send)


def test_a_producer_that_has_sent_nothing_yet_is_asked_for_what_an_earlier_one_left_open(
    served: Served,
) -> None:
    ledger = Ledger(paid=COMMIT)

    async def wait() -> None:
        async with producer(served.client, ledger.check):
            await asyncio.sleep(15)

    leave_open(served)
    served.run(wait)
    assert served.bodies() == ["paid"]


def test_a_producer_that_found_no_name_server_at_first_is_asked_as_soon_as_there_is_one(
    served: Served,
) -> None:
    ledger = Ledger(paid=COMMIT)

    async def wait() -> None:
        async with producer(served.client, ledger.check):
            served.name_server.host.kill()  # before it was asked for a route
            await asyncio.sleep(10)
            served.name_server.start()
            await asyncio.sleep(80)

    leave_open(served)
    served.run(wait)
    assert served.bodies() == ["paid"]


def test_many_transactions_are_asked_for_some_at_a_time(served: Served) -> None:
    running = most = 0

    async def check(message: ReceivedMessage) -> TransactionState:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1
        return COMMIT

    async def run() -> None:
        async with producer(served.client, check) as p:
            messages = [Message("T", b"%d" % number) for number in range(60)]
            await asyncio.gather(
                *(p.send_in_transaction(message, local(UNKNOWN)) for message in messages)
            )
            await asyncio.sleep(15)

    served.run(run)
    assert (len(served.bodies()), most) == (60, 16)


def test_a_delay_and_a_transaction_do_not_go_together(served: Served) -> None:
    async def run() -> None:
        async with producer(served.client, Ledger().check) as p:
            await p.send_in_transaction(Message("T", b"paid", delay_level=3), local(COMMIT))

    with pytest.raises(MessageError, match="cannot be delayed"):
        served.run(run)


def test_a_broker_that_takes_no_transactions_says_so(sim: Simulation) -> None:
    served = Served(sim, rejectTransactionMessage="true")

    async def run() -> None:
        async with producer(served.client, Ledger().check) as p:
            await p.send_in_transaction(Message("T", b"paid"), local(COMMIT))

    with pytest.raises(ResponseError, match="rejectTransactionMessage"):
        served.run(run)


def test_it_sends_plain_messages_too(served: Served) -> None:
    async def run() -> None:
        async with producer(served.client, Ledger().check) as p:
            await p.send("T", b"plain")

    served.run(run)
    assert served.bodies() == ["plain"]


@pytest.mark.parametrize(
    ("state", "word"),
    [(COMMIT, "COMMIT_MESSAGE"), (ROLLBACK, "ROLLBACK_MESSAGE"), (UNKNOWN, "UNKNOW")],
)
def test_a_trace_has_the_half_message_and_its_outcome(
    served: Served, state: TransactionState, word: str
) -> None:
    async def local(_message: Message, _transaction_id: str) -> TransactionState:
        return state

    async def run() -> TransactionResult:
        async with producer(served.client, Ledger(hi=COMMIT).check, trace=True) as p:
            result = await p.send_in_transaction(Message("T", b"hi", tags="a", keys="k"), local)
            await asyncio.sleep(15)  # until the broker has asked
            return result

    result = served.run(run)
    half, *outcomes = [
        text.split("\x01")
        for record in served.records(TRACE_TOPIC)
        for text in record.body.decode().removesuffix("\x02").split("\x02")
    ]
    assert half[0] == "Pub"
    assert half[5:8] == [result.transaction_id, "a", "k"]
    assert half[11] == "1"
    address = half[8]
    assert outcomes[0][:1] + outcomes[0][2:] == [
        "EndTransaction", "DefaultRegion", "P", "T", result.transaction_id, "a", "k", address, "2",
        result.transaction_id, word, "false",
    ]  # fmt: skip
    asked = [outcome[2:] for outcome in outcomes[1:]]
    assert asked == [[*outcomes[0][2:11], "COMMIT_MESSAGE", "true"]] * (state is UNKNOWN)


HOST = bytes(8)
HALF = decode(Record(0, 0, 0, 0, 0, 0, HOST, 0, HOST, 0, 0, b"half", "T", "").encode())


async def test_check_backs_beyond_the_limit_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    may_end = asyncio.Event()
    began: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        began.append(message.message_id)
        await may_end.wait()
        return TransactionState.UNKNOWN

    session = Session(ClientConfig("10.0.0.1:9876"))
    check_backs = CheckBacks(session, "G", check)
    connection = Connection({})
    for number in range(CHECKS_WAITING_MAX + 1):
        header = CheckTransactionHeader(0, 0, transaction_id=f"tx-{number}")
        check_backs.handle(header, HALF, connection)
    await asyncio.sleep(0)

    assert len(began) == CHECKS_AT_ONCE_MAX
    (line,) = caplog.messages
    assert line.startswith("too many check-backs wait")
    assert f"transaction=tx-{CHECKS_WAITING_MAX} waiting={CHECKS_WAITING_MAX}" in line

    may_end.set()
    await session.tasks.finish(10)
    assert len(began) == CHECKS_WAITING_MAX

    header = CheckTransactionHeader(0, 0, transaction_id="later")
    check_backs.handle(header, HALF, connection)
    await session.tasks.finish(10)
    assert len(began) == CHECKS_WAITING_MAX + 1, "none waits any more"
