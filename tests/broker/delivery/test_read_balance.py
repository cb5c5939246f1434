"""Which broker the next pull goes to.

See docs/broker/consumers.md#reading-from-slaves.
"""

from __future__ import annotations

from roquet.broker.delivery.read_balance import ReadBalance
from roquet.protocol.bodies.tables import GroupConfig

GROUP = GroupConfig("g", broker_id=0, which_broker_when_consume_slowly=2)


def test_without_slave_reads_everybody_is_sent_to_the_master() -> None:
    assert (
        ReadBalance(slave_reads=False, memory_size=100).next_broker(
            GroupConfig("g", broker_id=3), 1000
        )
        == 0
    )


def test_who_reads_what_is_no_longer_in_memory_is_sent_where_its_group_says() -> None:
    balance = ReadBalance(slave_reads=True, memory_size=100)
    assert balance.next_broker(GROUP, 100) == 0
    assert balance.next_broker(GROUP, 101) == 2
