"""Pull requests, and pull answers as values.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.queue_calls import response_header
from roquet.common.java import LONG_MAX, LONG_MIN
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.headers.pull import PullAnswer, PullHeader
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import MessageQueue, check_number
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

HOLD_SWEEP_MS: Final = 5000
"""Brokers check held pulls every 5 s, so a hold may last that much longer
(docs/pitfalls.md#trap-66)."""

_STATUS_CODES: Final = tuple(status.value for status in PullStatus)


def pull_request(
    group: str,
    queue: MessageQueue,
    offset: int,
    count: int,
    sys_flag: int,
    subscription: Subscription,
    hold_ms: int,
    commit_offset: int = 0,
) -> Command:
    """The request of a pull.

    :param count: maximum number of messages.
    :param sys_flag: bits that say which of the following values count: the subscription, the
        hold, the offset to commit.
    :param hold_ms: how long the broker may hold the pull, in ms.
    :raises MessageError: the offset is not a 64-bit number.
    """
    check_number("offset", offset, LONG_MIN, LONG_MAX)
    fields = _fields(group, queue, count, sys_flag, subscription, hold_ms)
    return Command(
        RequestCode.PULL_MESSAGE,
        {**fields, "queueOffset": str(offset), "commitOffset": str(commit_offset)},
    )


@lru_cache(1024)
def _fields(
    group: str,
    queue: MessageQueue,
    count: int,
    sys_flag: int,
    subscription: Subscription,
    hold_ms: int,
) -> dict[str, str]:
    """The fields that all pulls of a queue have in common.

    They are cached because a consumer may send thousands of pulls per second.
    """
    header = PullHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=count,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=hold_ms,
        subscription=subscription.expression,
        sub_version=subscription.version,
        expression_type=subscription.expression_type,
        bname=queue.broker_name,
    )
    return header.write()


def pull_result(
    response: Command,
    address: str,
    subscription: Subscription,
    *,
    of_master: bool = True,
    broker_name: str = "",
    uncompressed_max: int = UNCOMPRESSED_MAX,
    names: Namespace = NO_NAMESPACE,
) -> PullResult:
    """The answer to a pull.

    :param broker_name: that of the queue.
    :param uncompressed_max: maximum size of a decompressed body in bytes.
    :param names: the namespace of the client.
    :raises ResponseError: the broker refused the pull.
    :raises PeerError: the answer lacks an offset.
    """
    checked(response, address, _STATUS_CODES)
    answer = response_header(PullAnswer, response, address)
    return PullResult(
        PullStatus(response.code),
        answer.next_begin_offset,
        answer.min_offset,
        answer.max_offset,
        answer.suggest_which_broker_id,
        response.body if response.code == ResponseCode.SUCCESS else b"",
        subscription.tag_filter,
        of_master,
        broker_name,
        uncompressed_max,
        names,
    )
