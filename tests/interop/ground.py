"""Where scenarios run: a name server and a broker, ours or Apache's, with the same
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic

CLUSTER: Final = "ground"
BROKER: Final = "ground-a"
DELAY_LEVELS_S: Final = (1, 2, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4)
"""Level 1 first. The first three retries are of levels 3 to 5."""
CHECKS_MAX: Final = 5
QUICK: Final[Mapping[str, str | int]] = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in DELAY_LEVELS_S),
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": CHECKS_MAX,
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    "waitTimeMillsInSendQueue": 10_000,
    "osPageCacheBusyTimeOutMills": 20_000,
}
"""What has to wait waits briefly; neither a busy machine nor a slow drive refuses a send."""
STRICT: Final[Mapping[str, str | int]] = {
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "longPollingEnable": "false",
    "enablePropertyFilter": "false",
    "accessMessageInMemoryMaxRatio": 0,
}
"""A broker on which nothing comes to be by itself and no pull waits for long."""
STRICT_NAMES: Final[Mapping[str, str | int]] = {"orderMessageEnable": "true"}


class Ground:
    """A name server and its one broker.

    :param is_apache: whether they are Apache's own, of 4.9.7, which scenarios are to be right
        about.
    """

    def __init__(
        self,
        *,
        is_apache: bool,
        broker: Mapping[str, str | int] = QUICK,
        names: Mapping[str, str | int] | None = None,
    ) -> None:
        self.is_apache = is_apache
        self._running = ExitStack()
        if is_apache:
            self.name_server: ApacheNameServer | RoquetNameServer = ApacheNameServer(
                properties=names
            )
        else:
            self.name_server = RoquetNameServer()
            self.name_server.properties |= names or {}
        kind = ApacheBroker if is_apache else RoquetBroker
        self.broker: ApacheBroker | RoquetBroker = kind(
            self.name_server.address, name=BROKER, cluster=CLUSTER, properties=broker
        )

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    def create_topic(self, topic: str, queues: int) -> None:
        """Returns when the name server has a route for it."""
        create_topic(self.broker, topic, queues)

    def __enter__(self) -> Self:
        for server in (self.name_server, self.broker):
            self._running.enter_context(server)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()
