"""roquet: Apache RocketMQ in Python.

This package exports the public API of the client. Each name is imported on first use, so
`import roquet` itself loads almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.common.lazy import attributes_of

if TYPE_CHECKING:
    from roquet import allocation, dev, errors, sync
    from roquet.client._consume.pull_flow import PrefetchLimits
    from roquet.client._consume.pull_result import PullResult, PullStatus
    from roquet.client.config import ClientConfig
    from roquet.client.consumer import Consumer
    from roquet.client.hook import CallEvent, ConsumeEvent, ConsumeOutcome, Hook, SendEvent
    from roquet.client.metrics import (
        ClientMetrics,
        ConnectionMetrics,
        ConsumerMetrics,
        LatencyHistogram,
        ProducerMetrics,
        PullConsumerMetrics,
        QueueMetrics,
        TopicMetrics,
    )
    from roquet.client.producer import Producer
    from roquet.client.pull_consumer import PullConsumer
    from roquet.client.rebalance_listener import RebalanceListener
    from roquet.client.received import ReceivedMessage
    from roquet.client.selector import Sql
    from roquet.client.send_result import SendResult, SendStatus
    from roquet.client.transactions import (
        TransactionProducer,
        TransactionResult,
        TransactionState,
    )
    from roquet.cluster import Client, connect
    from roquet.errors import (
        AccessDenied,
        CallTimeout,
        ClientStateError,
        ConfigError,
        ConnectionClosed,
        CorruptRecord,
        DamagedBody,
        FilterError,
        MessageError,
        OptionError,
        PeerError,
        ResponseError,
        RoquetError,
        RouteNotFound,
        TlsError,
    )
    from roquet.protocol.records.message import Message, MessageQueue
    from roquet.protocol.remoting.signing import Credentials
    from roquet.transport.tls import Tls

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "CallEvent",
    "CallTimeout",
    "Client",
    "ClientConfig",
    "ClientMetrics",
    "ClientStateError",
    "ConfigError",
    "ConnectionClosed",
    "ConnectionMetrics",
    "ConsumeEvent",
    "ConsumeOutcome",
    "Consumer",
    "ConsumerMetrics",
    "CorruptRecord",
    "Credentials",
    "DamagedBody",
    "FilterError",
    "Hook",
    "LatencyHistogram",
    "Message",
    "MessageError",
    "MessageQueue",
    "OptionError",
    "PeerError",
    "PrefetchLimits",
    "Producer",
    "ProducerMetrics",
    "PullConsumer",
    "PullConsumerMetrics",
    "PullResult",
    "PullStatus",
    "QueueMetrics",
    "RebalanceListener",
    "ReceivedMessage",
    "ResponseError",
    "RoquetError",
    "RouteNotFound",
    "SendEvent",
    "SendResult",
    "SendStatus",
    "Sql",
    "Tls",
    "TlsError",
    "TopicMetrics",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "allocation",
    "connect",
    "dev",
    "errors",
    "sync",
]

_HOMES = {
    "CallEvent": "client.hook",
    "Client": "cluster",
    "ClientConfig": "client.config",
    "ConsumeEvent": "client.hook",
    "ConsumeOutcome": "client.hook",
    "Consumer": "client.consumer",
    "Credentials": "protocol.remoting.signing",
    "Hook": "client.hook",
    "PrefetchLimits": "client._consume.pull_flow",
    "Message": "protocol.records.message",
    "MessageQueue": "protocol.records.message",
    "Producer": "client.producer",
    "PullConsumer": "client.pull_consumer",
    "PullResult": "client._consume.pull_result",
    "PullStatus": "client._consume.pull_result",
    "RebalanceListener": "client.rebalance_listener",
    "ReceivedMessage": "client.received",
    "SendEvent": "client.hook",
    "SendResult": "client.send_result",
    "SendStatus": "client.send_result",
    "Sql": "client.selector",
    "Tls": "transport.tls",
    "TransactionProducer": "client.transactions",
    "TransactionResult": "client.transactions",
    "TransactionState": "client.transactions",
    "ClientMetrics": "client.metrics",
    "ConnectionMetrics": "client.metrics",
    "ConsumerMetrics": "client.metrics",
    "LatencyHistogram": "client.metrics",
    "ProducerMetrics": "client.metrics",
    "PullConsumerMetrics": "client.metrics",
    "QueueMetrics": "client.metrics",
    "TopicMetrics": "client.metrics",
    "allocation": "allocation",
    "connect": "cluster",
    "dev": "dev",
    "errors": "errors",
    "sync": "sync",
}
"""Public name -> the module that defines it; all other public names are defined in `errors`."""


# A type checker that sees `__getattr__` accepts any attribute of the package.
if not TYPE_CHECKING:
    __getattr__ = attributes_of(
        __name__, {name: f"roquet.{_HOMES.get(name, 'errors')}" for name in __all__}
    )


def __dir__() -> list[str]:
    return __all__
