"""A broker that is killed under load; the long way, with Apache's programs as judges, is `make
soak`.
"""

from __future__ import annotations

import pytest

from tests.integration.kills import (
    SETTINGS,
    assert_files_are_whole,
    is_routed,
    kill_again_and_again,
    read_by_us,
)
from tests.interop.apache import wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer

pytestmark = pytest.mark.process

KILLS = 4
SEED = 1


async def test_acknowledged_messages_are_where_they_were_after_every_kill() -> None:
    with RoquetNameServer() as names, RoquetBroker(names.address, properties=SETTINGS) as broker:
        broker.kill()
        load = await kill_again_and_again(broker, SEED, KILLS)
        assert_files_are_whole(load, broker.store_dir)
        broker.start()
        wait_until(lambda: is_routed(broker), "a route for the topic")
        load.assert_kept(await read_by_us(names.address))
