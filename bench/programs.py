"""The programs of a measurement: roquet's servers as a user starts them, Apache's broker and
benchmark classes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.loads import TOPIC, Load
from roquet.protocol.remoting.codes import RequestCode
from tests.interop import wire
from tests.interop.apache import HOST, LOGBACK, OPENED, ApacheBroker
from tests.interop.processes import Program, free_port, wait_until
from tests.interop.toolchain import Version, java, java_classpath

ROQUET: Final = Path(sys.executable).with_name("roquet")
BYTE_CODE: Final = Path(__file__).with_name("out") / "byte-code"
PYTHON: Final = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(BYTE_CODE)}
"""Byte code is kept, as where it is installed; not beside the sources."""
LAUNCHER: Final = Path(__file__).with_name("Launcher.java")
BROKER_GC: Final = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
)
"""From Apache's start script for Java 9 and newer, without its `AlwaysPreTouch`: that takes all the
heap at once.
"""
CLIENT_JVM: Final = ("-Xms1g", "-Xmx1g", "-Xmn512m", "-XX:+UseParallelGC")


def broker_jvm(heap: str) -> tuple[str, ...]:
    return ("-server", f"-Xms{heap}", f"-Xmx{heap}", *BROKER_GC)


def broker_conf(port: int, name_server: str, store: Path) -> dict[str, str | int]:
    """The same for both brokers; all else is at its default, which is the same for both, too."""
    return {
        "brokerClusterName": "bench",
        "brokerName": "bench",
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "listenPort": port,
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "diskMaxUsedSpaceRatio": 95,
    }


class RoquetServer(Program):
    """`roquet namesrv -c FILE` or `roquet broker -c FILE`.

    :param under: the command that runs the program, such as a profiler's; its own interpreter
        without.
    :param source: the `src` folder of another state of roquet, which runs instead of the installed
        one.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        properties: Mapping[str, str | int],
        under: Sequence[str] = (),
        source: Path | None = None,
    ) -> None:
        super().__init__(f"roquet-{kind}", directory)
        self.address = f"{HOST}:{properties['listenPort']}"
        self._kind = kind
        self._properties = properties
        self._under = under
        self._environment = (
            PYTHON | {"NAMESRV_ADDR": ""} | ({"PYTHONPATH": str(source)} if source else {})
        )

    def start(self) -> None:
        """Returns when it accepts."""
        configuration = self.directory / "server.conf"
        configuration.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties.items())
        )
        self.launch(
            [*self._under, str(ROQUET), self._kind, "-c", str(configuration)], self._environment
        )
        self.wait_ready(lambda: wire.accepts(self.address), f"{self.address} accepts")


def compile_roquet() -> None:
    """So that no measured start does it."""
    command = [str(ROQUET), "broker", "--print-config"]
    subprocess.run(command, env=os.environ | PYTHON, stdout=subprocess.DEVNULL, check=True)


def name_server(directory: Path) -> RoquetServer:
    return RoquetServer("namesrv", directory, {"listenPort": free_port(), "bindAddress": HOST})


def roquet_broker(
    directory: Path, names: str, under: Sequence[str] = (), source: Path | None = None
) -> RoquetServer:
    return RoquetServer(
        "broker",
        directory,
        broker_conf(free_port(-2, 1), names, directory / "store"),
        under,
        source,
    )


def apache_broker(directory: Path, names: str, heap: str) -> ApacheBroker:
    port = free_port(-2, 1)
    return ApacheBroker(
        names,
        version=Version.V4,
        port=port,
        directory=directory,
        properties=broker_conf(port, names, directory / "store"),
        jvm=broker_jvm(heap),
    )


def create_topic(broker: str, topic: str, queues: int) -> None:
    """Returns when the broker has it; a young one may not take it at once."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues), "order": "false"}
    wait_until(
        lambda: wire.ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0,
        f"topic {topic}",
    )


def start_benchmark(load: Load, names: str, directory: Path, topic: str = TOPIC) -> Program:
    """Apache's benchmark class, running; its reports go to the program's output."""
    client = Program(load.name, directory)
    logging = directory / "logback.xml"
    logging.write_text(LOGBACK.format(level="OFF"))
    home = [f"-Duser.home={directory}", f"-Drmq.logback.configurationFile={logging}"]
    launcher = [str(LAUNCHER), *load.settings] if load.settings else []
    command = [
        *CLIENT_JVM,
        *OPENED,
        *home,
        "-cp",
        java_classpath(Version.V5),
        *launcher,
        *load.command(names, topic),
    ]
    client.launch([str(java()), *command], {"ROCKETMQ_HOME": str(directory), "NAMESRV_ADDR": ""})
    return client
