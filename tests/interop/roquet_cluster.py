"""Our name server and brokers as a user starts them, real processes of the command line; the
surface is `apache.py`'s.

What is started in a `with` block is gone after it; `stop()` is an orderly end, `kill()` a crash,
and `start()` after either goes on with the same store and ports.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop import wire
from tests.interop.apache import ApacheBroker, free_port, membership, wait_until
from tests.interop.processes import LOOPBACK, Host, Program

CLUSTER = "roquet-cluster"
BROKER = "roquet-a"
UPDATE_AND_CREATE_TOPIC = 17
PATIENT = {"slaveTimeout": 20_000, "osPageCacheBusyTimeOutMills": 20_000}
"""A busy host may let a slave wait for longer than the usual 3 s, and a drive for longer than the
usual second.
"""
SMALL = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
}
ON_ANY_DRIVE = dict.fromkeys(
    ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), 100
)
"""Nothing goes, and nothing is refused, because the drive that the tests run on is nearly full."""


class _Server(Program):
    """`roquet COMMAND -c FILE`."""

    def __init__(self, name: str, command: str, port: int, host: Host) -> None:
        super().__init__(name, host=host)
        self.port = port
        self.address = f"{host.ip}:{port}"
        self.properties: dict[str, object] = {"listenPort": port, "bindAddress": host.ip}
        self._command = command

    def start(self) -> None:
        """Returns when it serves."""
        settings = self.directory / "server.conf"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [sys.executable, "-m", "roquet.cli.main", self._command, "-c", str(settings)]
        self.launch(command, {"NAMESRV_ADDR": ""})
        self.wait_ready(lambda: wire.accepts(self.address), f"{self.address} accepts")

    def stop(self) -> None:
        """SIGTERM; it has to end in order."""
        super().stop()
        assert self.status == 0, f"{self.name} ended with {self.status}:\n{self.log()[-4000:]}"

    def __enter__(self) -> Self:
        if not self.alive:
            self.start()
        return self


class RoquetNameServer(_Server):
    """Our name server; `address` is where it listens."""

    def __init__(self, host: Host = LOOPBACK) -> None:
        super().__init__("roquet-namesrv", "namesrv", free_port(), host)
        self.properties |= {"kvConfigPath": self.directory / "kvConfig.json"}


class RoquetBroker(_Server):
    """Our broker; it serves clients at `address`, on the port two below, and slaves on the port one
    above.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        name: str = BROKER,
        cluster: str = CLUSTER,
        role: str = "ASYNC_MASTER",
        broker_id: int = 0,
        port: int | None = None,
        store_dir: Path | None = None,
        properties: Mapping[str, str | int] | None = None,
        host: Host = LOOPBACK,
    ) -> None:
        super().__init__(f"roquet-broker-{broker_id}", "broker", port or free_port(-2, 1), host)
        self.namesrv = namesrv
        self.store_dir = store_dir or self.directory / "store"
        self.properties |= {
            **membership(cluster, name, broker_id, role, namesrv, host.ip),
            "storePathRootDir": self.store_dir,
            **PATIENT,
            **SMALL,
            **ON_ANY_DRIVE,
            **(properties or {}),
        }

    def start(self) -> None:
        """Returns when it serves and its name server lists it."""
        super().start()
        self.wait_ready(
            lambda: wire.has_broker(self.namesrv, self.address), f"{self.address} is listed"
        )

    def state(self, name: str) -> str:
        """The text of one of its state files, such as `topics`; empty as long as there is none."""
        file = self.store_dir / "config" / f"{name}.json"
        return file.read_text() if file.exists() else ""


def create_topic(
    broker: ApacheBroker | RoquetBroker, topic: str, queues: int, perm: int = 6
) -> None:
    """Returns when the name server has a route for it."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
    }
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues), "order": "false"}
    assert wire.ask(broker.address, UPDATE_AND_CREATE_TOPIC, fields).code == 0
    wait_until(lambda: wire.has_topic(broker.namesrv, topic), f"a route for {topic}")


class RoquetCluster:
    """Name server, SYNC_MASTER and as many slaves as there are hosts for them."""

    def __init__(
        self,
        names: Host = LOOPBACK,
        master: Host = LOOPBACK,
        slaves: Sequence[Host] = (LOOPBACK,),
        properties: Mapping[str, str | int] | None = None,
    ) -> None:
        self.name_server = RoquetNameServer(names)
        self.master = RoquetBroker(
            self.namesrv, role="SYNC_MASTER", properties=properties, host=master
        )
        self.slaves = [
            RoquetBroker(
                self.namesrv, role="SLAVE", broker_id=broker_id, properties=properties, host=host
            )
            for broker_id, host in enumerate(slaves, start=1)
        ]
        self.slave = self.slaves[0]
        self._running = ExitStack()

    @property
    def brokers(self) -> list[RoquetBroker]:
        """The master first."""
        return [self.master, *self.slaves]

    @property
    def namesrv(self) -> str:
        return self.name_server.address

    def create_topic(self, topic: str, queues: int) -> None:
        """Returns when the name server has a route for it."""
        create_topic(self.master, topic, queues)

    def wait_replicated(self) -> None:
        """Until a send is answered with success, which says that a slave has it."""
        wait_until(
            lambda: _is_stored_twice(self.master.address), "a send that the slave acknowledged"
        )

    def __enter__(self) -> Self:
        for server in (self.name_server, *self.brokers):
            self._running.enter_context(server)
        self.wait_replicated()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()


def _is_stored_twice(master: str) -> bool:
    """Whether one send to the topic that every broker has for itself is answered with 0."""
    return wire.ask(master, wire.SEND_MESSAGE, wire.send_fields(BROKER), b"probe").code == 0
