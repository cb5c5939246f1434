"""The names of `rocketmq.client`."""

from __future__ import annotations

from roquet.compat.rocketmq.consts import MessageProperty
from roquet.compat.rocketmq.messages import Message, ReceivedMessage
from roquet.compat.rocketmq.producers import (
    Producer,
    SendResult,
    SendStatus,
    TransactionMQProducer,
    TransactionStatus,
)
from roquet.compat.rocketmq.push_consumer import ConsumeStatus, MessageModel, PushConsumer

__all__ = [
    "ConsumeStatus",
    "Message",
    "MessageModel",
    "MessageProperty",
    "Producer",
    "PushConsumer",
    "ReceivedMessage",
    "RecvMessage",
    "SendResult",
    "SendStatus",
    "TransactionMQProducer",
    "TransactionStatus",
]

RecvMessage = ReceivedMessage
"""Its name in rocketmq-client-python 1.x."""
