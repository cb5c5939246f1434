"""Creates and deletes topics and groups of a test cluster, by the requests of Apache's tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from roquet.dev.loop_thread import LoopThread
from roquet.protocol.headers import Header
from roquet.protocol.headers.admin import CreateTopicHeader, DeleteGroupHeader, TopicHeader
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, RETRY_PREFIX
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels

_TIMEOUT_MS: Final = 10_000


Asked = tuple[str, RequestCode, Header]


def create(topic: str, queues: int, masters: Iterable[str]) -> None:
    """Create a topic at these addresses."""
    header = CreateTopicHeader(topic, queues, queues)
    _ask((master, RequestCode.UPDATE_AND_CREATE_TOPIC, header) for master in masters)


def delete(topics: Iterable[str], masters: Iterable[str]) -> None:
    """Delete topics with their messages and all offsets in them."""
    headers = [TopicHeader(topic) for topic in topics]
    _ask(
        (master, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        for master in masters
        for header in headers
    )


def forget(topics: Iterable[str], name_server: str) -> None:
    """Let the name server forget the routes of deleted topics, which brokers do not tell it."""
    _ask((name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicHeader(each)) for each in topics)


def delete_group(group: str, masters: Iterable[str]) -> None:
    """Delete a consumer group and its offsets."""
    header = DeleteGroupHeader(group, remove_offset=True, clean_offset=True)
    _ask((master, RequestCode.DELETE_SUBSCRIPTIONGROUP, header) for master in masters)


def topics_of_group(group: str) -> tuple[str, str]:
    """Its retry topic and its dead letter topic."""
    return RETRY_PREFIX + group, DEAD_LETTER_PREFIX + group


def _ask(requests: Iterable[Asked]) -> None:
    """Send these requests one after the other, from a thread that runs nothing else.

    :raises ResponseError: one was refused.
    :raises ConnectionClosed, CallTimeout: one was not answered.
    """
    thread = LoopThread("roquet-topics")
    try:
        thread.run(_asked(requests))
    finally:
        thread.end()


async def _asked(requests: Iterable[Asked]) -> None:
    channels = Channels()
    try:
        for address, code, header in requests:
            request = Command(code, header.write())
            checked(await channels.call(address, request, _TIMEOUT_MS), address)
    finally:
        await channels.close()
