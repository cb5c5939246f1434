"""Apache Kafka's broker, to measure beside; one node on loopback that is its own controller."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from tests.interop import wire
from tests.interop.apache import HOST
from tests.interop.processes import Program, free_port
from tests.interop.toolchain import class_paths, java

_POM: Final = Path(__file__).with_name("kafka")
_CLUSTER_ID: Final = "cm9xdWV0LWJlbmNoLTAwMA"
"""16 bytes of our own, as Kafka writes them."""
_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
"""From Kafka's start script."""


@cache
def jars() -> dict[str, str]:
    """The class paths of the `broker` and of Spark's `connector`."""
    return class_paths("kafka", _POM, ("broker", "connector"))


class KafkaBroker(Program):
    """Listens at `address`; a topic that somebody sends to comes to be, with so many partitions."""

    def __init__(self, directory: Path, partitions: int, heap: str) -> None:
        super().__init__("kafka", directory)
        port, controller = free_port(), free_port()
        self.address = f"{HOST}:{port}"
        self._jvm = (f"-Xms{heap}", f"-Xmx{heap}", *_JVM)
        self._properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{HOST}:{controller}",
            "log.dirs": directory / "store",
            "num.partitions": partitions,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }

    def start(self) -> None:
        """With a fresh store; returns when it accepts."""
        configuration = self.directory / "server.properties"
        configuration.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties.items())
        )
        command = [str(java()), *self._jvm, "-cp", jars()["broker"]]
        made = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(configuration)]
        subprocess.run(
            [*command, *made], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
        )
        self.launch([*command, "kafka.Kafka", str(configuration)])
        self.wait_ready(lambda: wire.accepts(self.address), f"{self.address} accepts")
