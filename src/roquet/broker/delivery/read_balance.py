"""PURE: which replica a consumer should pull from next.

See docs/broker/consumers.md#reading-from-slaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.protocol.bodies.tables import MASTER_ID, GroupConfig


@dataclass(frozen=True, slots=True)
class ReadBalance:
    """Sends consumers that read old messages from disk to the group's broker for slow consumption.

    The rule is the same on masters and slaves.

    :param slave_reads: whether consumers may be sent to slaves at all (`slaveReadEnable`).
    :param memory_size: bytes of the log's end that count as being in memory.
    """

    slave_reads: bool
    memory_size: int

    def next_broker(self, group: GroupConfig, lag: int) -> int:
        """The broker id that a pull's answer suggests for the next pull.

        :param lag: bytes between the last record that was read and the end of the log.
        """
        if not self.slave_reads:
            return MASTER_ID
        if lag > self.memory_size:
            return group.which_broker_when_consume_slowly
        return group.broker_id
