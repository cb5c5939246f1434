"""That a SYNC_MASTER's SEND_OK means two copies, so that either broker may be lost the next
moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roquet.broker.config.store import BrokerRole
from roquet.client.send_result import SendResult
from tests.simulation.checks import key_at
from tests.simulation.clients import place_of

if TYPE_CHECKING:
    from tests.simulation.broker_set import BrokerSet
    from tests.simulation.nodes import BrokerNode

ANSWER_S_MAX: Final = 10.0
"""An answer is not under way for longer: the producer would not wait for it."""


def acknowledged_is_there_twice(brokers: BrokerSet) -> Callable[[], None]:
    """Whatever a SYNC_MASTER has acknowledged is in the log of two brokers when the producer hears
    of it, or was in that of one that has ended while the answer was under way.
    """
    return Copies(brokers).check


class Copies:
    """Invariant: `_reached[name]` is how far a broker's log reached in its present and its last life,
    and when it was seen so; of the first `_known` acknowledged messages each was found twice.
    """

    def __init__(self, brokers: BrokerSet) -> None:
        self._set = brokers
        self._known = 0
        self._reached: dict[str, dict[int, tuple[int, float]]] = {
            name: {} for name in brokers.brokers
        }

    def check(self) -> None:
        acknowledged = self._set.acknowledged
        for name, node in self._set.brokers.items():
            self._look_at(node, self._reached[name])
        if self._known == len(acknowledged):
            return
        new = list(acknowledged.items())[self._known :]
        self._known = len(acknowledged)
        if self._set.master.config.replication.broker_role is BrokerRole.SYNC_MASTER:
            for key, result in new:
                if place_of(result) < self._set.deleted_to:
                    continue
                self._check_message(key, result)

    def _look_at(self, node: BrokerNode, reached: dict[int, tuple[int, float]]) -> None:
        if node.log_end is None:
            return
        now_s = self._set.cluster.sim.now_s
        _, seen_s = reached.get(node.life, (0, now_s))
        reached[node.life] = node.log_end, now_s if node.broker is not None else seen_s
        reached.pop(node.life - 2, None)

    def _check_message(self, key: str, result: SendResult) -> None:
        had = [
            name
            for name, node in self._set.brokers.items()
            if self._has(node, key, place_of(result))
        ]
        assert len(had) > 1, f"{key}, acknowledged at {place_of(result)}, is only on {had}"

    def _has(self, node: BrokerNode, key: str, at: int) -> bool:
        if node.broker is not None and key_at(node.broker.store, at) == key:
            return True
        reached, now_s = self._reached[node.name], self._set.cluster.sim.now_s
        ended = [each for life, each in reached.items() if node.broker is None or life != node.life]
        return any(end > at and now_s - seen_s < ANSWER_S_MAX for end, seen_s in ended)
