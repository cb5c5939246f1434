"""PURE: limits on what clients can make one broker keep in memory; Apache has none of them.

Without limits one request can make a broker keep, or go through, any amount. Tables that were saved
with more entries are loaded in full; only requests that would make them larger are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.settings import setting
from roquet.errors import Refused
from roquet.protocol.records.message import PROPERTIES_SIZE_MAX
from roquet.protocol.remoting.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one broker: counts of entries; `json_body_size_max` in bytes.

    `topic_nums_max` counts retry and dead letter topics, too, but these are still created for
    existing groups when the limit is reached. Its default bounds the registration at a name server
    to 7 MB; a frame may have 16 MiB.

    `member_subscription_nums_max` is a limit on the subscriptions of all members of all groups, and
    a separate one on the groups of all producers. A subscription that no other member shares takes
    250 bytes of memory; one with texts of more than 256 characters counts as several.

    `statistics_nums_max` counts pairs of queue and group, some 3 KB each when all windows have
    samples. `transaction_nums_max` counts open transactions, 220 to 280 bytes each.
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
    """Check a count against its limit.

    :param what: the noun in the remark.
    :param name: the setting, for the remark.
    :raises Refused: `count` is above `count_max`.
    """
    if count > count_max:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"{what}: {count}, allowed are {count_max} ({name})"
        )


def refuse_long_properties(
    size: int,
    whose: str = "the properties",
    code: ResponseCode = ResponseCode.MESSAGE_ILLEGAL,
    size_max: int = PROPERTIES_SIZE_MAX,
) -> None:
    """Check the size of a message's properties as they would be stored, in bytes.

    :param whose: the noun in the remark.
    :raises Refused: they are too long; with `code`.
    """
    if size > size_max:
        raise Refused(code, f"{whose} have {size} bytes, allowed are {size_max}")
