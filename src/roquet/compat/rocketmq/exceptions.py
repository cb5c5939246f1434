"""The exceptions of `rocketmq.exceptions`. The `RoquetError` underneath is their cause.

Each is a `RoquetError`, too, so that programs may move on to the names of roquet step by step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from roquet.errors import RoquetError

__all__ = [
    "ConsumerException",
    "MallocFailed",
    "NullPointerException",
    "ProducerException",
    "ProducerSendAsyncFailed",
    "ProducerSendOnewayFailed",
    "ProducerSendOrderlyFailed",
    "ProducerSendSyncFailed",
    "ProducerStartFailed",
    "PushConsumerStartFailed",
    "RocketMQException",
]


class RocketMQException(RoquetError):
    """The base class of the exceptions of this package."""


class NullPointerException(RocketMQException):
    """Nothing raises it here. It is there for programs that name it."""


class MallocFailed(RocketMQException):
    """Nothing raises it here. It is there for programs that name it."""


class ProducerException(RocketMQException):
    """A producer cannot do what it was asked for."""


class ProducerStartFailed(ProducerException):
    """A setting of a producer cannot be used, or no name server answers."""


class ProducerSendSyncFailed(ProducerException):
    """A send failed. The broker may have stored the message all the same."""


class ProducerSendOnewayFailed(ProducerException):
    """A message was not sent."""


class ProducerSendOrderlyFailed(ProducerException):
    """A send with a sharding key failed. The broker may have stored the message all the same."""


class ProducerSendAsyncFailed(ProducerException):
    """Nothing raises it here. It is there for programs that name it."""


class ConsumerException(RocketMQException):
    """A consumer cannot do what it was asked for."""


class PushConsumerStartFailed(ConsumerException):
    """A setting of a consumer cannot be used, or no name server answers."""


@contextmanager
def raised_as(kind: type[RocketMQException]) -> Iterator[None]:
    """Errors of roquet in the block are raised as `kind`, with the same text."""
    try:
        yield
    except RocketMQException:
        raise
    except RoquetError as error:
        raise kind(str(error)) from error
