"""What may listen to the rebalances of a consumer."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.client.rebalance_listener import RebalanceListener
from roquet.errors import ConfigError
from roquet.protocol.records.message import MessageQueue


class PlainListener(RebalanceListener):
    def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (print, "listener is <built-in function print>: give an object of a subclass"),
        (RebalanceListener, "listener is <class .*>: give an object"),
        (PlainListener(), "listener: PlainListener.queues_revoked is no coroutine function"),
    ],
)
def test_what_is_no_listener_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Consumer("ns:9876", "G", "T", listener=given)
