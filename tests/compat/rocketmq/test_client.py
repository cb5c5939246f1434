"""Programs for rocketmq-client-python run when their imports are changed, and nothing else."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from roquet.compat.rocketmq import client, consts, exceptions
from roquet.dev import Cluster

SEND = """
from rocketmq.client import Producer, Message

producer = Producer('PID-XXX')
producer.set_name_server_address(name_server)
producer.start()

msg = Message(topic)
msg.set_keys('XXX')
msg.set_tags('XXX')
msg.set_body('XXXX')
ret = producer.send_sync(msg)
print(ret.status, ret.msg_id, ret.offset)
producer.shutdown()
"""

CONSUME = """
from rocketmq.client import PushConsumer


def callback(msg):
    print(msg.id, msg.body)


consumer = PushConsumer('CID_XXX')
consumer.set_name_server_address(name_server)
consumer.subscribe(topic, callback)
consumer.start()

wait()

consumer.shutdown()
"""

ORDERLY = """
from rocketmq.client import Producer, Message

producer = Producer('PID-orderly', True)
producer.set_name_server_address(name_server)
producer.start()
for n in range(3):
    msg = Message(topic)
    msg.set_property('property', 'test')
    msg.set_body('message body')
    ret = producer.send_orderly_with_sharding_key(msg, 'orderId')
    print(str(ret.status), ret.offset)
producer.shutdown()
"""

TRANSACTION = """
from rocketmq.client import Message, TransactionMQProducer, TransactionStatus


def check_callback(msg):
    print('check', msg.body.decode('utf-8'))
    return TransactionStatus.COMMIT


def local_execute(msg, user_args):
    print('local', msg.body.decode('utf-8'))
    return TransactionStatus.UNKNOWN


producer = TransactionMQProducer('PID-transaction', check_callback)
producer.set_name_server_address(name_server)
producer.start()
msg = Message(topic)
msg.set_body('message body')
ret = producer.send_message_in_transaction(msg, local_execute, None)
print('sent', ret.msg_id)

wait()

producer.shutdown()
"""


class Program:
    """A program whose waiting ends when it has printed a number of lines."""

    def __init__(self, text: str, cluster: Cluster, topic: str) -> None:
        self._text = text.replace("from rocketmq.", "from roquet.compat.rocketmq.")
        self._names = {"name_server": cluster.name_server, "topic": topic}
        self._printed: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def run(self, lines: int) -> list[tuple[Any, ...]]:
        """What it prints until there are that many lines, in any order."""
        found: list[tuple[Any, ...]] = []

        def collect() -> None:
            found.extend(self._printed.get(timeout=30) for _ in range(lines - len(found)))

        names = {**self._names, "print": lambda *parts: self._printed.put(parts), "wait": collect}
        exec(compile(self._text, "program", "exec"), names)
        collect()
        return found


def test_a_producer_and_a_consumer_whose_callback_returns_nothing(
    cluster: Cluster, topic: str
) -> None:
    [(status, message_id, offset)] = Program(SEND, cluster, topic).run(1)
    assert (status, offset) == (client.SendStatus.OK, 0)

    assert Program(CONSUME, cluster, topic).run(1) == [(message_id, b"XXXX")]


def test_messages_of_a_sharding_key_are_in_one_queue(cluster: Cluster, topic: str) -> None:
    printed = Program(ORDERLY, cluster, topic).run(3)

    assert [offset for _, offset in printed] == [0, 1, 2]


def test_an_unknown_transaction_is_checked_and_delivered(cluster: Cluster, topic: str) -> None:
    printed = Program(TRANSACTION, cluster, topic).run(3)

    assert printed[0] == ("local", "message body")
    assert ("check", "message body") in printed
    message_id = dict(printed)["sent"]
    assert Program(CONSUME, cluster, topic).run(1) == [(message_id, b"message body")]


@pytest.mark.parametrize("module", [client, exceptions, consts])
def test_every_public_name_is_there(module: Any) -> None:
    assert all(hasattr(module, name) for name in module.__all__)
    assert client.RecvMessage is client.ReceivedMessage
