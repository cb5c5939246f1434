"""Namespaces: names of topics and groups as brokers know them, and as applications do.

See docs/protocol/messages.md#namespaces.
"""

from __future__ import annotations

from typing import Final

from roquet.protocol.records.message import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    MessageQueue,
    is_legal_name,
)

SEPARATOR: Final = "%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


class Namespace:
    """The namespace of a client. Applications see plain names, brokers full ones.

    Invariant: system topics and system groups have no namespace. A name has it once only.

    :param name: None or empty: there is no namespace, and plain and full names are the same.
    :raises ValueError: no topic's name can begin with `name`.
    """

    __slots__ = ("_prefix",)

    def __init__(self, name: str | None = None) -> None:
        if name and (SEPARATOR in name or not is_legal_name(name)):
            raise ValueError(f"namespace {name!r}: allowed are letters, digits and |_-")
        self._prefix = name + SEPARATOR if name else ""

    @property
    def name(self) -> str:
        """The namespace; empty if there is none."""
        return self._prefix.removesuffix(SEPARATOR)

    def full(self, name: str) -> str:
        """The full name of a topic or group."""
        if not self._prefix or is_system_name(name):
            return name
        kind, rest = _split(name)
        return name if rest.startswith(self._prefix) else kind + self._prefix + rest

    def plain(self, name: str) -> str:
        """The plain name of a topic or group; the name itself if it is of another namespace."""
        if not self._prefix:
            return name
        kind, rest = _split(name)
        return kind + rest.removeprefix(self._prefix)

    def has(self, name: str) -> bool:
        """Whether a full name is one of this namespace. Without one, all are."""
        return _split(name)[1].startswith(self._prefix)

    def full_queue(self, queue: MessageQueue) -> MessageQueue:
        if not self._prefix:
            return queue
        return MessageQueue(self.full(queue.topic), queue.broker_name, queue.queue_id)

    def plain_queue(self, queue: MessageQueue) -> MessageQueue:
        if not self._prefix:
            return queue
        return MessageQueue(self.plain(queue.topic), queue.broker_name, queue.queue_id)


NO_NAMESPACE: Final = Namespace()


def is_system_name(name: str) -> bool:
    """Whether a topic or group belongs to no application."""
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX))


def _split(name: str) -> tuple[str, str]:
    """The prefix of a retry or dead letter topic, or nothing, and the rest."""
    for kind in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(kind):
            return kind, name[len(kind) :]
    return "", name
