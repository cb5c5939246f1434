"""PURE: how much of everything one broker keeps for clients that ask for it; all of these settings are ours.

Apache's broker has no such limits, and one request can make it keep, or go through, any amount. What was saved before
counts as it is: tables beyond a limit are loaded, and only what would make them larger is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.settings import setting
from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts, and `json_body_size_max` in bytes.

    `topic_nums_max` counts retry and dead letter topics, too, but these are made for a group that exists beyond it as
    well. `member_subscription_nums_max` counts those of all members of all groups, 250 bytes each where no two want the
    same (one whose texts are longer than 256 characters counts as several), and apart from them the groups of all
    producers. `statistics_nums_max` counts pairs of a queue and a group, some 3 KB each once all windows have looked at
    them; `transaction_nums_max` what is open, 350 bytes each.

    The default of `topic_nums_max` keeps the registration at a name server, 7 MB then, within a frame, which may have
    16 MiB.
    """

    json_body_size_max: int = setting(512 * 1024, at_least=4096)
    topic_nums_max: int = setting(50_000, at_least=1)
    topic_queue_nums_max: int = setting(4096, at_least=1)
    group_nums_max: int = setting(20_000, at_least=1)
    member_nums_max: int = setting(10_000, at_least=1)
    subscription_nums_max: int = setting(2000, at_least=1)
    member_subscription_nums_max: int = setting(1_000_000, at_least=1)
    client_group_nums_max: int = setting(2000, at_least=1)
    filter_nums_max: int = setting(10_000, at_least=1)
    offset_nums_max: int = setting(1_000_000, at_least=1)
    lock_nums_max: int = setting(200_000, at_least=1)
    transaction_nums_max: int = setting(1_000_000, at_least=1)
    statistics_nums_max: int = setting(100_000, at_least=1)


def refuse_beyond(count: int, count_max: int, what: str, name: str) -> None:
    """:raises Refused: `count` is more than the setting `name` allows; the remark says what there is too much of."""
    if count > count_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"{what}: {count}, allowed are {count_max} ({name})"
        )
