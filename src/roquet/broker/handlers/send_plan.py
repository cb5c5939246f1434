"""PURE: what a broker decides about a send, for the slow path and the fast path alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from roquet.broker.config.delay_levels import put_aside, waiting_queue
from roquet.broker.config.limits import refuse_long_properties
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.topics import TopicRegistry
from roquet.errors import Refused
from roquet.protocol.bodies.tables import DataVersion
from roquet.protocol.records import message as m
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import BINARY, Command


class TableGuard(NamedTuple):
    """The tables of topics and groups, with the versions under which a plan was derived."""

    topics: TopicRegistry
    groups: GroupRegistry
    topics_version: DataVersion
    groups_version: DataVersion

    def holds(self) -> bool:
        """Whether neither table has changed."""
        topics, groups, topics_version, groups_version = self
        return topics.version is topics_version and groups.version is groups_version


@dataclass(slots=True, unsafe_hash=True)
class SendPlan:
    """How sends that differ only in their `SendValues` are checked, stored and answered.

    `SendPlanner` makes the plan of a request, `SendExecutor` stores and answers with it. The slow
    path makes a plan for every request. The fast path makes none: it keeps the plans of header
    templates and takes the values from their places in the header. It knows no other rule of sends.

    A plan is derived from four things. Three of them are the same as long as a fast path lives: the
    constant fields of the header, the broker's settings, and the connection's peer. The fourth are
    the tables of topics and groups: a plan that was kept may be used as long as its `guard` holds.
    Whether the broker accepts messages at all is no part of a plan: `SendContext.check` is
    asked before any plan is used.

    A record is made of a plan and of values:

    - topic and queue id: `queue`;
    - flag, sysFlag, born host, reconsume times: as they are here; store host: the broker's;
    - born time and body: values; of a batch: each message's own flag and body;
    - properties: `stored_pairs`; of a batch: each message's own before these;
    - keys and tag code: of the properties UNIQ_KEY, KEYS and TAGS among the values; in the entry of
      a delayed message the store time + `delay_ms` is in place of the tag code.

    An answer has the values opaque and queue id, and the queue offset and physical offset.

    :param is_half: the message is stored as a half message (`HalfMessages.put`).
    :param is_batch: the body has several messages.
    :param topic: where the message is stored, or is delivered when its delay or transaction ends.
    :param queue_limit: requests may name the queues below it.
    :param is_dead_letter: the message goes to queue 0 of the dead letter topic, whatever queue of
        the retry topic the request names.
    :param level: the delay level at which it waits in the schedule topic, 0: it does not. A half
        message does not wait, a batch with a level is refused.
    :param delay_ms: of that level.
    :param cluster: stored as a property.
    :param born_host: the client's address and port, as stored.
    :param sys_flag: as stored.
    :param waits: whether the answer may have to wait for disk or slave (`AckGate.hold`).
    :param body_size_max: bytes of a body, as sent.
    :param is_queued: whether the messages get queue entries (half messages: in the half topic).
    """

    is_half: bool
    is_batch: bool
    topic: str
    queue_limit: int
    is_dead_letter: bool
    level: int
    delay_ms: int | None
    cluster: str
    flag: int
    sys_flag: int
    reconsume_times: int
    born_host: bytes
    waits: bool
    is_binary: bool
    is_one_way: bool
    body_size_max: int
    is_queued: bool
    guard: TableGuard

    def queue(self, queue_id: int) -> tuple[str, int]:
        """Topic and queue id where a message that is sent to this queue is stored."""
        return waiting_queue(self.level) if self.level else (self.topic, queue_id)

    def check_body(self, size: int) -> None:
        """:raises Refused: the body is too large."""
        if size > self.body_size_max:
            what = "the body of the batch" if self.is_batch else "the body"
            remark = f"{what} has {size} bytes, maxMessageSize allows {self.body_size_max}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)

    def stored_pairs(self, pairs: Mapping[str, str], queue_id: int) -> dict[str, str]:
        """The properties to store, in their order (docs/protocol/messages.md#properties).

        :param pairs: as the request has them (`SendValues.pairs`).
        """
        stored = dict(pairs)
        if not (self.is_half or self.is_batch):
            stored.pop(m.WAIT, None)
        if self.level:
            stored = put_aside(stored, self.level, self.topic, queue_id)
        stored[m.CLUSTER] = self.cluster
        return stored

    def stored_properties(self, pairs: Mapping[str, str], queue_id: int) -> bytes:
        """`stored_pairs` as bytes.

        :raises Refused: they are too long.
        """
        properties = m.join_properties(self.stored_pairs(pairs, queue_id)).encode()
        refuse_long_properties(len(properties))
        return properties


class SendValues(NamedTuple):
    """What may differ between sends with one plan.

    :param opaque: as the answer's header has it: four bytes, or decimal digits in JSON.
    :param queue_id: the queue of the plan's topic.
    :param born_ms: ms since the epoch.
    :param pairs: all properties; those but UNIQ_KEY, KEYS and TAGS do not differ.
    :param body: the message's, or the messages of a batch.
    """

    opaque: bytes
    queue_id: int
    born_ms: int
    pairs: dict[str, str]
    body: bytes


def encoded_opaque(request: Command) -> bytes:
    """The opaque of a request as its answer's header has it (`SendValues.opaque`)."""
    if request.header_type == BINARY:
        return request.opaque.to_bytes(4, "big", signed=True)
    return b"%d" % request.opaque
