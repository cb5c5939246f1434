"""Apache's name server, broker, clients and mqadmin: real processes on loopback, each in a
directory of its own.

Every start waits for a condition (a port accepts, a route names the broker), never for a span of
time. What is started in a `with` block is gone after it; `kill()` is a crash, and `start()` after
it goes on with the same store and port.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop import wire
from tests.interop.processes import (
    LOOPBACK,
    SEND_MS_MAX,
    Client,
    Finished,
    Program,
    Session,
    free_port,
    wait_until,
)
from tests.interop.toolchain import (
    Version,
    go_driver,
    java,
    java_classpath,
    require_go,
    require_java,
)

__all__ = [
    "PATIENT",
    "ApacheBroker",
    "ApacheNameServer",
    "Client",
    "Finished",
    "JavaClients",
    "Session",
    "Spoken",
    "Version",
    "free_port",
    "go_client",
    "launch_java",
    "mqadmin",
    "require_go",
    "require_java",
    "run_driver",
    "run_java",
    "start_driver",
    "start_go_client",
    "start_session",
    "wait_until",
]

HOST = LOOPBACK.ip
PATIENT: Final = ("--timeout", SEND_MS_MAX, "--api-timeout", SEND_MS_MAX)
"""For sends of drivers, and what they ask before, which by themselves wait 3 s."""
PATIENT_BROKER: Final = dict.fromkeys(
    ("waitTimeMillsInSendQueue", "waitTimeMillsInTransactionQueue", "osPageCacheBusyTimeOutMills"),
    SEND_MS_MAX,
)
"""Else a broker refuses what a busy machine let wait for 200 ms, 3 s, or a second."""
BRIEF_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""None lives long enough for what the second compiler takes: it is a third of a broker's start."""
SERVER_JVM = ("-Xms256m", "-Xmx512m", "-Xmn128m", *BRIEF_JVM)
CLIENT_JVM = ("-Xmx256m", *BRIEF_JVM)
OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)
LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{20}} %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="console"/></root>
</configuration>
"""


class _Server(Program):
    """What name server and broker share: a home directory, a properties file and a JVM."""

    main_class: str

    def __init__(
        self,
        name: str,
        version: Version,
        directory: Path | None,
        jvm: Sequence[str],
        java_options: Sequence[str],
    ) -> None:
        super().__init__(name, directory)
        self.version = version
        self._options = (*jvm, *java_options)

    def _launch_server(self, properties: Mapping[str, str | int]) -> None:
        configuration = self.directory / "server.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        options = [*_java_options(self.directory, "INFO"), *self._options]
        self.launch(
            [
                str(java()),
                *options,
                "-cp",
                java_classpath(self.version),
                self.main_class,
                "-c",
                str(configuration),
            ],
            {"ROCKETMQ_HOME": str(self.directory), "NAMESRV_ADDR": ""},
        )

    def __enter__(self) -> Self:
        if not self.alive:
            self.start()
        return self

    def start(self) -> None:
        raise NotImplementedError


class ApacheNameServer(_Server):
    """Apache's name server; `address` is where it listens."""

    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def __init__(
        self,
        *,
        version: Version = Version.V4,
        port: int | None = None,
        directory: Path | None = None,
        properties: Mapping[str, str | int] | None = None,
        jvm: Sequence[str] = SERVER_JVM,
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__("namesrv", version, directory, jvm, java_options)
        self.port = port or free_port()
        self.address = f"{HOST}:{self.port}"
        self._properties = {"listenPort": self.port, **(properties or {})}

    def start(self) -> None:
        self._launch_server(self._properties)
        self.wait_ready(lambda: wire.accepts(self.address), f"{self.address} accepts")


def membership(
    cluster: str, name: str, broker_id: int, role: str, namesrv: str, ip: str = HOST
) -> dict[str, object]:
    """What broker.conf says of a broker's place in its cluster, for ours and Apache's."""
    return {
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": broker_id,
        "brokerRole": role,
        "brokerIP1": ip,
        "brokerIP2": ip,
        "namesrvAddr": namesrv,
    }


class ApacheBroker(_Server):
    """Apache's broker; it serves clients at `address`, on the port two below, and slaves on the
    port one above.
    """

    main_class = "org.apache.rocketmq.broker.BrokerStartup"

    def __init__(
        self,
        namesrv: str,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        role: str = "ASYNC_MASTER",
        broker_id: int = 0,
        version: Version = Version.V4,
        port: int | None = None,
        directory: Path | None = None,
        store_dir: Path | None = None,
        properties: Mapping[str, str | int] | None = None,
        jvm: Sequence[str] = SERVER_JVM,
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(f"broker-{broker_id}", version, directory, jvm, java_options)
        self.namesrv = namesrv
        self.port = port or free_port(-2, 1)
        self.address = f"{HOST}:{self.port}"
        self.ha_address = f"{HOST}:{self.port + 1}"
        self.store_dir = store_dir or self.directory / "store"
        self._properties: dict[str, object] = {
            **membership(cluster, name, broker_id, role, namesrv),
            "listenPort": self.port,
            "storePathRootDir": self.store_dir,
            "storePathCommitLog": self.store_dir / "commitlog",
            "diskMaxUsedSpaceRatio": 95,
            **PATIENT_BROKER,
            **({"haListenPort": self.port + 1} if version is Version.V5 else {}),
            **(properties or {}),
        }

    def start(self, *, registered: bool = True) -> None:
        """Returns when it serves, and when its name server lists it unless that is not wanted."""
        self._launch_server({key: str(value) for key, value in self._properties.items()})
        self.wait_ready(lambda: wire.accepts(self.address), f"{self.address} accepts")
        if registered:
            first = self.namesrv.split(";")[0]
            self.wait_ready(
                lambda: wire.has_broker(first, self.address), f"{self.address} is listed by {first}"
            )


class JavaClients:
    """Java clients by release and kind of header, such as `4.9.7-binary`; each starts when it is
    first asked for.
    """

    KINDS = tuple(f"{version}-{header}" for version in Version for header in ("json", "binary"))

    def __init__(self) -> None:
        self._running = ExitStack()
        self._sessions: dict[str, Session] = {}

    def __getitem__(self, kind: str) -> Session:
        session = self._sessions.get(kind)
        if session is None or not session.alive:
            version, header = kind.split("-")
            options = [
                "-Xmx128m",
                *(["-Drocketmq.serialize.type=ROCKETMQ"] if header == "binary" else []),
            ]
            session = self._running.enter_context(
                start_session(Version(version), java_options=options)
            )
            self._sessions[kind] = session
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()


@dataclass(frozen=True)
class Spoken:
    """What a program such as an mqadmin command printed."""

    status: int
    out: str
    err: str


def run_driver(
    version: Version,
    *args: str | int | Path,
    timeout_s: float = 120,
    java_options: Sequence[str] = (),
) -> Finished:
    """Our Java driver to its end, with the client of that version."""
    with start_driver(version, *args, java_options=java_options) as client:
        return client.finish(timeout_s)


def start_driver(
    version: Version, *args: str | int | Path, java_options: Sequence[str] = ()
) -> Client:
    """Our Java driver, running; for use in `with`."""
    return _start_java(version, "roquet.Driver", args, (*CLIENT_JVM, *java_options))


def start_session(version: Version, *, java_options: Sequence[str] = ()) -> Session:
    """Our Java driver, waiting for commands; for use in `with`."""
    session = Session(f"session-{version}")
    launch_java(
        session, version, "roquet.Driver", ["session"], (*CLIENT_JVM, *java_options), listens=True
    )
    session.wait_started()
    return session


def run_java(
    version: Version,
    main_class: str,
    *args: str | int | Path,
    timeout_s: float = 300,
    jvm: Sequence[str] = CLIENT_JVM,
) -> Spoken:
    """Any class of Apache's jars to its end, such as its benchmarks."""
    with _start_java(version, main_class, args, jvm) as program:
        return Spoken(
            program.wait_end(timeout_s), _without_notices(program.output()), program.errors()
        )


def go_client(*args: str | int | Path, timeout_s: float = 120) -> Finished:
    """Apache's Go client to its end."""
    with start_go_client(*args) as client:
        return client.finish(timeout_s)


def start_go_client(*args: str | int | Path) -> Client:
    """Apache's Go client, running; for use in `with`."""
    client = Client("go")
    client.launch(
        [str(go_driver()), *map(str, args)], {"ROCKETMQ_GO_LOG_LEVEL": "error", "NAMESRV_ADDR": ""}
    )
    return client


def mqadmin(
    *args: str | int | Path,
    namesrv: str,
    version: Version = Version.V4,
    java_options: Sequence[str] = (),
    timeout_s: float = 120,
) -> Spoken:
    """One mqadmin command, such as `mqadmin("clusterList", namesrv=...)`."""
    jvm = (*CLIENT_JVM, *java_options, f"-Drocketmq.namesrv.addr={namesrv}")
    return run_java(
        version,
        "org.apache.rocketmq.tools.command.MQAdminStartup",
        *args,
        timeout_s=timeout_s,
        jvm=jvm,
    )


def _start_java(
    version: Version, main_class: str, args: Sequence[str | int | Path], options: Sequence[str]
) -> Client:
    client = Client(main_class.rpartition(".")[2].lower())
    launch_java(client, version, main_class, args, options)
    return client


def launch_java(
    client: Client,
    version: Version,
    main_class: str,
    args: Sequence[str | int | Path],
    options: Sequence[str],
    *,
    listens: bool = False,
) -> None:
    """Start a class of Apache's jars or of our driver as this client's process."""
    options = [*_java_options(client.directory, "OFF"), *options]
    client.launch(
        [str(java()), *options, "-cp", java_classpath(version), main_class, *map(str, args)],
        {
            "ROCKETMQ_HOME": str(client.directory),
            "NAMESRV_ADDR": "",
            "LC_ALL": "C.UTF-8",
        },  # Arguments are UTF-8.
        listens=listens,
    )


def _java_options(home: Path, log_level: str) -> list[str]:
    """Options every JVM gets; its home and logs lie in the program's own directory."""
    for program in ("namesrv", "broker", "tools"):
        (home / "conf").mkdir(exist_ok=True)
        (home / "conf" / f"logback_{program}.xml").write_text(LOGBACK.format(level=log_level))
    return [
        *OPENED,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        f"-Drmq.logback.configurationFile={home / 'conf' / 'logback_tools.xml'}",
    ]


def _without_notices(out: str) -> str:
    """The printed text without what the logging libraries say about themselves."""
    notices = re.compile(r"RocketMQLog:WARN|SLF4J:|OpenJDK |WARNING: ")
    return "".join(line for line in out.splitlines(keepends=True) if not notices.match(line))
