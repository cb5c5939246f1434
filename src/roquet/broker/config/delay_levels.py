"""PURE: delay levels, and the properties of a message that waits in the schedule topic.

See docs/protocol/producing.md#delay-levels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from roquet.errors import Refused
from roquet.protocol.records.message import DELAY, REAL_QID, REAL_TOPIC, SCHEDULE_TOPIC
from roquet.protocol.remoting.codes import ResponseCode

_LEVEL: Final = re.compile(r"([0-9]+)([smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delay of each level in ms; level 1 comes first."""

    ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Read a `messageDelayLevel`.

        :raises ValueError: `text` is not a list of times like 10s, 5m, 2h, 1d, separated by blanks.
        """
        spans = text.split()
        if not spans:
            raise ValueError("there is no level in it; allowed is a list such as 1s 5s 10s")
        return cls(tuple(map(_span_ms, spans)))

    def level_of(self, properties: Mapping[str, str]) -> int:
        """The delay level that a message asks for, 0 for none; at most the last level.

        :raises Refused: DELAY is not a number.
        """
        text = properties.get(DELAY)
        if text is None:
            return 0
        if _NUMBER.fullmatch(text) is None:
            remark = f"{DELAY} is {text!r}: a delay level is a number from 0 to {len(self.ms)}"
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        return self.nearest(int(text))

    def nearest(self, level: int) -> int:
        """The existing level that is nearest to `level`, or 0."""
        return max(0, min(level, len(self.ms)))


def waiting_queue(level: int) -> tuple[str, int]:
    """Topic and queue id in which messages of a level wait."""
    return SCHEDULE_TOPIC, level - 1


def put_aside(
    properties: Mapping[str, str], level: int, topic: str, queue_id: int
) -> dict[str, str]:
    """The properties of a message that waits in the schedule topic.

    :param topic: the topic to which it is delivered later.
    :param queue_id: the queue of `topic`.
    """
    return {**properties, DELAY: str(level), REAL_TOPIC: topic, REAL_QID: str(queue_id)}


def _span_ms(text: str) -> int:
    match = _LEVEL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number followed by s, m, h or d")
    return int(match.group(1)) * _UNIT_MS[match.group(2)]
