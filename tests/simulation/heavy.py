"""A client whose heartbeats would take a broker far longer to read than they take to send."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from roquet.errors import RoquetError
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from tests.simulation.cluster import Cluster

ADDRESS: Final = "10.0.4.4"
CALL_MS: Final = 3000
PAUSE_S: Final = 0.3
REFERENCES: Final = 60
"""Of the second kind to that many of the first: 3,600 subscriptions of a text of 5 KB; of 90 KB
they are millions.
"""
CONDITIONS: Final = 5_000
CONSUMER: Final = {
    "groupName": "heavy",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
}


class HeavyRequests:
    """Nothing takes time on a virtual clock: so each of these has to be refused.

    Invariant: `refused` counts them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.refused = 0
        self._cluster = cluster
        self._host = cluster.sim.host(ADDRESS)
        self._chance = cluster.sim.chance("heavy requests")
        self._is_coming = False

    def come(self) -> None:
        """From now on, until `come_no_more`."""
        self._is_coming = True
        self._host.start(self._go_on)

    def come_no_more(self) -> None:
        self._is_coming = False

    async def _go_on(self) -> None:
        channels = Channels()
        try:
            while self._is_coming:
                await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
                what, body = self._chance.choice(
                    (("references", references()), ("SQL92", long_expression()))
                )
                address = self._chance.choice(list(self._cluster.brokers.values())).address
                try:
                    answer = await channels.call(
                        address, Command(RequestCode.HEART_BEAT, {}, body), CALL_MS
                    )
                except RoquetError:
                    continue  # nobody listens there now
                assert answer.code != ResponseCode.SUCCESS, (
                    f"a heartbeat of {len(body)} bytes is taken: {what}"
                )
                self.refused += 1
        finally:
            await channels.close()


def references() -> bytes:
    """Groups that refer to one, whose subscriptions refer to one."""
    subscription = {"topic": "T", "subString": "*", "expressionType": "TAG", "subVersion": 1}
    to_subscription = {"$ref": "$.consumerDataSet[0].subscriptionDataSet[0]"}
    subscriptions = [subscription, *[to_subscription] * REFERENCES]
    consumers = [
        {**CONSUMER, "subscriptionDataSet": subscriptions},
        *[{"$ref": "$.consumerDataSet[0]"}] * REFERENCES,
    ]
    return json.dumps({"clientID": "heavy", "consumerDataSet": consumers}).encode()


def long_expression() -> bytes:
    expression = " OR ".join(["a = 1"] * CONDITIONS)
    subscription = {
        "topic": "T",
        "subString": expression,
        "expressionType": "SQL92",
        "subVersion": 1,
    }
    consumer = {**CONSUMER, "subscriptionDataSet": [subscription]}
    return json.dumps({"clientID": "heavy", "consumerDataSet": [consumer]}).encode()
