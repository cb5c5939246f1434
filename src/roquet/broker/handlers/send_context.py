"""What all handlers need that take messages in for clients: sends, and what consumers send back.

See docs/protocol/producing.md#a-send-step-by-step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from roquet.broker.config.delay_levels import DelayLevels
from roquet.broker.delivery.ack_gate import AckGate
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.metadata.metadata import Metadata
from roquet.errors import Refused
from roquet.protocol.bodies.tables import GroupConfig
from roquet.protocol.remoting.codes import VERSION_MAX_RECONSUME, ResponseCode
from roquet.storage.store import Store


@dataclass(frozen=True, slots=True)
class SendConfig:
    """What sends depend on beside topics and groups; sizes in bytes, times in ms since the epoch."""

    cluster: str
    delay_levels: DelayLevels
    region: str = "DefaultRegion"
    trace_on: bool = True
    is_slave: bool = False
    is_writable: bool = True
    message_size_max: int = 4 * 1024 * 1024
    accept_from_ms: int = 0
    takes_transactions: bool = True


@dataclass(frozen=True, slots=True)
class SendContext:
    """Where messages go, and by which rules.

    `turn` is told of every append, `now_ms` is the wall clock, `chance` chooses queues for those who leave it open.
    """

    config: SendConfig
    store: Store
    metadata: Metadata
    ack_gate: AckGate
    turn: EndOfTurn
    now_ms: Callable[[], int]
    chance: random.Random

    def check(self) -> None:
        """:raises Refused: this broker takes no message from anybody now."""
        config = self.config
        if config.is_slave:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send to its master"
            )
        if self.store.why_full:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"no message is taken: {self.store.why_full}"
            )
        if config.accept_from_ms > self.now_ms():
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker takes messages from {config.accept_from_ms} ms on",
            )

    def group(self, name: str) -> GroupConfig:
        """A consumer group, made if it may be.

        :raises Refused: an admin has to create it first.
        """
        group = self.metadata.group(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"consumer group {name} does not exist"
            )
        return group


def tries_max(group: GroupConfig, version: int, wanted: int | None) -> int:
    """How often a message comes again to a group before it is a dead letter.

    :param version: of the client; those of later versions say in `wanted` what they want.
    """
    return group.retry_max_times if wanted is None or version < VERSION_MAX_RECONSUME else wanted
