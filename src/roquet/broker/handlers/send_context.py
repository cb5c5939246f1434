"""The context of all handlers that store messages: sends, batches, replies and send backs.

See docs/protocol/producing.md#a-send-step-by-step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.handlers.send_plan import TableGuard
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.topics import TopicRegistry
from roquet.errors import Refused
from roquet.protocol.bodies.tables import GroupConfig
from roquet.protocol.remoting.codes import VERSION_MAX_RECONSUME, ResponseCode
from roquet.storage.store import Store


@dataclass(slots=True)
class SendContext:
    """The store, the tables and the settings that all handlers share that store messages.

    :param turn: its `due()` is called after every append.
    :param now_ms: the wall clock, ms since the epoch.
    :param chance: chooses a write queue for sends with a queue id below 0.
    """

    config: BrokerConfig
    store: Store
    topics: TopicRegistry
    groups: GroupRegistry
    write_gate: WriteGate
    ack_gate: AckGate
    turn: EndOfTurn
    now_ms: Callable[[], int]
    chance: random.Random
    _is_slave: bool = field(init=False)
    """Kept, because `check` runs for each read of a connection: the config's takes 0.5 us."""

    def __post_init__(self) -> None:
        self._is_slave = self.config.is_slave

    def check(self, *, is_send: bool = True) -> None:
        """Check whether this broker accepts messages now.

        :param is_send: False for messages that may come while many sends wait for their answers.
        :raises Refused: it is a slave, its store cannot take messages, its start time for sends has
            not come, or too many sends wait.
        """
        config = self.config
        if self._is_slave:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send to its master"
            )
        if why := self.write_gate.why_closed:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker accepts no messages: {why}"
            )
        begin_ms = config.start_accept_send_request_time_stamp
        if begin_ms and begin_ms > self.now_ms():
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker accepts no messages before the Unix time of {begin_ms} ms "
                "(startAcceptSendRequestTimeStamp)",
            )
        if is_send and (why_busy := self.ack_gate.why_busy):
            raise Refused(ResponseCode.SYSTEM_BUSY, why_busy)

    def guard(self) -> TableGuard:
        """Holds until a topic or a group changes."""
        return TableGuard(self.topics, self.groups, self.topics.version, self.groups.version)


def tries_max(group: GroupConfig, version: int, wanted: int | None) -> int:
    """How many times a message is retried before it becomes a dead letter.

    :param version: of the client. Clients before 3.4.9 do not send `wanted`.
    :param wanted: the request's `maxReconsumeTimes`, if it has one.
    """
    return group.retry_max_times if wanted is None or version < VERSION_MAX_RECONSUME else wanted
