"""Headers of requests to a name server: codes 100 to 104, 205, 216, 219, 224, 322, 327.

See docs/protocol/request-codes.md#to-a-name-server.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.java import Int32, Int64
from roquet.protocol.headers import Header


@dataclass(frozen=True, slots=True)
class RegisterBrokerHeader(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0


@dataclass(frozen=True, slots=True)
class RegisterBrokerAnswer(Header):
    """The addresses of a slave's master, while it is registered; a master's answer has none."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerHeader(Header):
    """Codes 104 and 322: one broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True)
class DataVersionAnswer(Header):
    changed: bool


@dataclass(frozen=True, slots=True)
class BrokerNameHeader(Header):
    """Codes 205 and 327."""

    broker_name: str


@dataclass(frozen=True, slots=True)
class WipeAnswer(Header):
    wipe_topic_count: Int32


@dataclass(frozen=True, slots=True)
class AddPermissionAnswer(Header):
    add_topic_count: Int32


@dataclass(frozen=True, slots=True)
class DeleteTopicHeader(Header):
    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterHeader(Header):
    cluster: str


@dataclass(frozen=True, slots=True)
class PutKvHeader(Header):
    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class KvHeader(Header):
    """Codes 101 and 102."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class KvAnswer(Header):
    value: str | None = None


@dataclass(frozen=True, slots=True)
class NamespaceHeader(Header):
    namespace: str
