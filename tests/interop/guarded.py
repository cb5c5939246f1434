"""Apache's 4.9.7 name server and broker as they are guarded: by keys, or by TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from roquet.admin.cluster import AdminClient
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RouteNotFound
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls
from tests.interop.apache import ApacheBroker, ApacheNameServer, require_java
from tests.transport.certificates import PASSWORD, Authority

ACCOUNTS = """accounts:
  - accessKey: application
    secretKey: application-secret
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
    topicPerms:
      - Refused=DENY
      - ReadOnly=SUB
  - accessKey: administrator
    secretKey: administrator-secret
    admin: true
"""
KEYS: Final = Credentials("application", "application-secret")
ADMIN: Final = Credentials("administrator", "administrator-secret")
WITH_KEYS: Final = {"accessKey": KEYS.access_key, "secretKey": KEYS.secret_key}
"""The same as options."""
ENFORCING: Final = "-Dtls.server.mode=enforcing"
_PROPERTIES: Final[dict[str, str | int]] = {
    "aclEnable": "true",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}


@contextmanager
def signing() -> Iterator[str]:
    """The name server of a broker that takes signed requests only; topics are there that an account
    may not write.
    """
    require_java()
    with ApacheNameServer() as names:
        broker = ApacheBroker(names.address, properties=_PROPERTIES)
        (broker.directory / "conf").mkdir(exist_ok=True)
        (broker.directory / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        with broker:
            asyncio.run(make_topics(names.address, "Refused", "ReadOnly"))
            yield names.address


async def make_topics(name_server: str, *topics: str) -> None:
    """With a message in each."""
    async with Producer(name_server, "Maker", timeout_ms=20_000, credentials=ADMIN) as producer:
        for topic in topics:
            await producer.send(topic, b"made")
    async with PullConsumer(name_server) as reader, asyncio.timeout(60):
        for topic in topics:
            while not await _is_routed(reader, topic):
                await asyncio.sleep(0.1)


async def _is_routed(reader: PullConsumer, topic: str) -> bool:
    with contextlib.suppress(RouteNotFound):
        return bool(await reader.queues(topic))
    return False


class Guarded:
    """Name server and broker that take TLS only, and want certificates of clients, too."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        server = self.authority.vouch("127.0.0.1")
        client = self.authority.vouch("client", password=PASSWORD)
        self.tls = Tls(self.authority.file, client.cert, client.key, PASSWORD)
        self.options = {
            "tlsCaFile": str(self.authority.file),
            "tlsCertFile": str(client.cert),
            "tlsKeyFile": str(client.key),
            "tlsKeyPassword": PASSWORD,
        }
        self.java = [
            ENFORCING,
            "-Dtls.test.mode.enable=false",
            "-Dtls.server.need.client.auth=require",
            "-Dtls.server.authClient=true",
            f"-Dtls.server.trustCertPath={self.authority.file}",
            f"-Dtls.server.certPath={server.cert}",
            f"-Dtls.server.keyPath={server.key}",
            "-Dtls.client.authServer=true",
            f"-Dtls.client.trustCertPath={self.authority.file}",
            f"-Dtls.client.certPath={server.cert}",
            f"-Dtls.client.keyPath={server.key}",
        ]
        self.name_server = ""
        self._running = ExitStack()

    def __enter__(self) -> Self:
        require_java()
        with self._running as starting:
            names = starting.enter_context(ApacheNameServer(java_options=self.java))
            broker = starting.enter_context(_Unlisted(names.address, java_options=self.java))
            self.name_server = names.address
            broker.wait_ready(
                lambda: asyncio.run(self._lists(broker.address)), "the name server lists the broker"
            )
            self._running = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    async def _lists(self, address: str) -> bool:
        async with AdminClient(self.name_server, tls=self.tls) as cluster:
            return any(
                address in broker.addresses.values()
                for broker in (await cluster.brokers()).values()
            )


class _Unlisted(ApacheBroker):
    """Who waits for it asks the name server with TLS."""

    def start(self, *, registered: bool = False) -> None:
        super().start(registered=registered)
