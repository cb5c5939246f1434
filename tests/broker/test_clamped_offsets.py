"""Groups that are further than their queues when a master starts."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.broker.component_configs import store_config
from roquet.broker.ha.rejoin import RejoinStore
from roquet.broker.metadata.state_files import CONSUMER_OFFSETS
from roquet.errors import StoreError
from roquet.protocol.remoting.codes import RequestCode
from roquet.storage.store import Store
from tests.broker.harness import Client
from tests.broker.served import send, started
from tests.simulation.simulation import Simulation

MASTER: Final = "10.0.0.1"
QUEUE: Final = {"consumerGroup": "g", "topic": "T", "queueId": 0}


def test_a_master_that_starts_sets_groups_back_to_the_end_of_their_queues(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """What they had seen beyond it, a power failure has taken; other messages will have those
    offsets.
    """
    node, client = started(sim, MASTER), Client(sim, sim.host("10.0.0.9"))
    for number in range(3):
        assert send(client, b"%d" % number).code == 0
    node.stop()
    disk = node.host.drive.mount()
    disk.replace(
        Path("/store/config") / CONSUMER_OFFSETS, b'{"offsetTable":{"T@g":{0:5},"T@h":{0:2}}}'
    )
    node.host.drive.unmount()
    node.start()
    sim.run_until(lambda: node.broker is not None, 10)
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE).fields == {"offset": "3"}
    assert client.call(
        RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE | {"consumerGroup": "h"}
    ).fields == {"offset": "2"}
    assert [line for line in caplog.messages if "set back" in line] == [
        "consumer offsets set back to the ends of their queues: group=g queues=1 first=T:0 offset=3"
    ]


def test_a_master_whose_log_is_not_mounted_does_not_start_and_its_slave_does(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    """It would begin at 0 again, and give offsets and places of acknowledged messages to others."""
    node, client = started(sim, MASTER), Client(sim, sim.host("10.0.0.9"))
    slave = started(
        sim, "10.0.0.2", brokerRole="SLAVE", brokerId=1, haMasterAddress=f"{MASTER}:10912"
    )
    assert send(client, b"0").code == 0
    sim.run_for(15)
    slave.stop()
    node.stop()
    for host in slave.host, node.host:
        host.drive.remove(Path(f"/store/commitlog/{0:020}"))
    slave.start()
    sim.run_until(lambda: slave.broker is not None, 10)
    store = Store(store_config(node.config), lambda: 0, node.host.drive.mount())
    with pytest.raises(
        StoreError, match="files of the commit log are missing from /store/commitlog"
    ):
        store.open()
    store.abandon()
    node.host.drive.unmount()
    RejoinStore(node.config, node.host.runtime(), node.host.drive.mount()).close()
    assert (
        len(
            [
                line
                for line in caplog.messages
                if "commit log is shorter than its checkpoint" in line
            ]
        )
        == 2
    )
