"""PURE: which broker of the same name a consumer should pull from next.

See docs/broker/consumers.md#reading-from-slaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from roquet.protocol.bodies.tables import GroupConfig

MASTER_ID: Final = 0


@dataclass(frozen=True, slots=True)
class ReadBalance:
    """The rule is the same on masters and slaves: who reads far behind the end is sent where that disturbs nobody.

    :param slave_reads: whether consumers may be sent to slaves at all (`slaveReadEnable`).
    :param memory_size: bytes of log that are taken to be in memory.
    """

    slave_reads: bool
    memory_size: int

    def next_broker(self, group: GroupConfig, behind: int) -> int:
        """The broker id to suggest with a pull's answer.

        :param behind: bytes between the last record that was looked at and the end of the log.
        """
        if not self.slave_reads:
            return MASTER_ID
        return (
            group.which_broker_when_consume_slowly if behind > self.memory_size else group.broker_id
        )
