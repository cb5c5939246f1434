"""Failed messages go back to a broker, or as a copy to any; what the copy has of the original."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest

from roquet.client._consume.prefetch import Delivery
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.send_back import FIRST_DELAY_LEVEL, NoSendBack, SendBack
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.client.received import MessageSource
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records.message import split_properties
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.protocol.examples import RECORD

ASK, COPY = RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2
REFUSED: Final = ResponseCode.SYSTEM_ERROR
MAX: Final = 7

Work = Callable[[SendBack], Coroutine[Any, Any, bool]]


def run(cluster: FakeCluster, work: Work) -> bool:
    async def main() -> bool:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            return await work(SendBack(session, "G", MAX))

    return cluster.run(main)


def delivery(record: Record, reconsume_times: int = 0) -> Delivery:
    return Delivery(record, MessageSource("broker-a"), ProcessQueue(0), reconsume_times)


@pytest.fixture
def stored(broker: FakeBroker) -> Record:
    broker.create("T", 1)
    broker.create("%RETRY%G", 1)
    return broker.store("T", 0, b"body", "UNIQ_KEY\x01KEY\x02a\x01b", flag=3)


def copy_of(broker: FakeBroker) -> tuple[SendHeaderV2, dict[str, str], bytes]:
    (request,) = broker.requests[COPY]
    header = SendHeaderV2.read(request.fields)
    return header, split_properties(header.properties), request.body


@pytest.mark.parametrize("level", [0, 5, -1])
def test_the_broker_of_a_message_takes_it_back_with_its_delay(
    cluster: FakeCluster, broker: FakeBroker, stored: Record, level: int
) -> None:
    assert run(cluster, lambda back: back.send_back(delivery(stored), level)) is True

    (request,) = broker.requests[ASK]
    assert request.fields["delayLevel"] == str(level)
    assert request.fields["offset"] == str(stored.physical_offset)
    assert request.fields["originMsgId"] == "KEY"
    assert request.fields["maxReconsumeTimes"] == str(MAX)
    assert not broker.requests[COPY]


def test_a_message_that_is_refused_is_copied_to_the_retry_topic(
    cluster: FakeCluster, broker: FakeBroker, stored: Record, caplog: pytest.LogCaptureFixture
) -> None:
    broker.script[ASK] = [REFUSED]

    assert run(cluster, lambda back: back.send_back(delivery(stored, reconsume_times=2))) is True

    header, properties, body = copy_of(broker)
    assert (header.topic, header.producer_group) == ("%RETRY%G", "CLIENT_INNER_PRODUCER")
    assert (header.flag, header.reconsume_times, header.max_reconsume_times) == (3, 3, MAX)
    assert properties == {
        "UNIQ_KEY": "KEY",
        "a": "b",
        "RETRY_TOPIC": "T",
        "DELAY": str(FIRST_DELAY_LEVEL + 2),
    }
    assert body == b"body"
    assert "message not sent back, a copy is sent: msgId=" in caplog.text


def test_a_copy_waits_as_long_as_the_application_wants(
    cluster: FakeCluster, broker: FakeBroker, stored: Record
) -> None:
    broker.script[ASK] = [REFUSED]

    run(cluster, lambda back: back.send_back(delivery(stored, reconsume_times=2), 9))

    assert copy_of(broker)[1]["DELAY"] == "9"


def test_a_message_that_is_given_up_is_a_copy_that_may_not_come_again(
    cluster: FakeCluster, broker: FakeBroker, stored: Record
) -> None:
    assert run(cluster, lambda back: back.give_up(delivery(stored))) is True

    header, properties, _ = copy_of(broker)
    assert (header.max_reconsume_times, properties["DELAY"]) == (0, "-1")
    assert not broker.requests[ASK]


def test_a_copy_has_no_property_that_would_take_effect_again(
    cluster: FakeCluster, broker: FakeBroker, stored: Record
) -> None:
    names = [
        "TRAN_MSG",
        "PGROUP",
        "REAL_TOPIC",
        "REAL_QID",
        "DELAY",
        "RECONSUME_TIME",
        "MAX_RECONSUME_TIMES",
    ]
    text = "\x02".join(f"{name}\x01x" for name in [*names, "KEYS"])

    run(cluster, lambda back: back.give_up(delivery(replace(stored, properties_text=text))))

    assert copy_of(broker)[1] == {
        "KEYS": "x",
        "RETRY_TOPIC": "T",
        "DELAY": "-1",
        "UNIQ_KEY": stored.offset_message_id,
    }


def test_a_copy_of_a_retry_keeps_the_topic_that_it_was_first_sent_to(
    cluster: FakeCluster, broker: FakeBroker, stored: Record
) -> None:
    again = replace(stored, topic="%RETRY%G", properties_text="RETRY_TOPIC\x01First")

    run(cluster, lambda back: back.give_up(delivery(again)))

    assert copy_of(broker)[1]["RETRY_TOPIC"] == "First"


def test_a_body_is_copied_as_it_is_stored_and_nothing_else_of_its_flags(
    cluster: FakeCluster, broker: FakeBroker, stored: Record
) -> None:
    compressed = replace(stored, sys_flag=0x301 | 0x4 | 0x10)

    run(cluster, lambda back: back.give_up(delivery(compressed)))

    header, _, body = copy_of(broker)
    assert (header.sys_flag, body) == (0x301, stored.body)


def test_a_message_that_no_broker_takes_is_told_of(
    cluster: FakeCluster, broker: FakeBroker, stored: Record, caplog: pytest.LogCaptureFixture
) -> None:
    broker.script[ASK], broker.script[COPY] = [REFUSED] * 9, [REFUSED] * 9

    assert run(cluster, lambda back: back.send_back(delivery(stored))) is False
    assert run(cluster, lambda back: back.give_up(delivery(stored))) is False
    assert caplog.text.count("copy of a failed message not sent: msgId=") == 2


async def test_a_broadcasting_member_drops_what_failed(caplog: pytest.LogCaptureFixture) -> None:
    assert await NoSendBack().send_back(delivery(RECORD), 5) is True
    assert await NoSendBack().give_up(delivery(RECORD)) is True

    assert [record.getMessage() for record in caplog.records] == [
        "message failed, it is not delivered again (broadcast): "
        f"msgId={RECORD.offset_message_id} topic=T"
    ] * 2
