"""roquet: Apache RocketMQ in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roquet.client.producer import Producer as Producer
    from roquet.client.pull_consumer import PullConsumer as PullConsumer
    from roquet.client.pull_result import PullResult as PullResult
    from roquet.client.pull_result import PullStatus as PullStatus
    from roquet.client.push_consumer import Consumer as Consumer
    from roquet.client.received import ReceivedMessage as ReceivedMessage
    from roquet.client.send_result import SendResult as SendResult
    from roquet.client.send_result import SendStatus as SendStatus
    from roquet.errors import CallTimeout as CallTimeout
    from roquet.errors import ConnectionClosed as ConnectionClosed
    from roquet.errors import MessageError as MessageError
    from roquet.errors import ResponseError as ResponseError
    from roquet.errors import RoquetError as RoquetError
    from roquet.errors import RouteNotFound as RouteNotFound
    from roquet.protocol.message import Message as Message
    from roquet.protocol.message import MessageQueue as MessageQueue

_HOME = {
    "CallTimeout": "roquet.errors",
    "ConnectionClosed": "roquet.errors",
    "Consumer": "roquet.client.push_consumer",
    "Message": "roquet.protocol.message",
    "MessageError": "roquet.errors",
    "MessageQueue": "roquet.protocol.message",
    "Producer": "roquet.client.producer",
    "PullConsumer": "roquet.client.pull_consumer",
    "PullResult": "roquet.client.pull_result",
    "PullStatus": "roquet.client.pull_result",
    "ReceivedMessage": "roquet.client.received",
    "ResponseError": "roquet.errors",
    "RoquetError": "roquet.errors",
    "RouteNotFound": "roquet.errors",
    "SendResult": "roquet.client.send_result",
    "SendStatus": "roquet.client.send_result",
}
"""Public name -> its module, loaded when the name is first used: `import roquet` alone costs next to nothing."""

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return [*_HOME]
