"""Starts name server and brokers of a test cluster, and lets them fail as a test wants."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final, Self, TypeVar

from roquet.broker.config.broker import BrokerConfig, check
from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.store import DELAY_LEVELS, BrokerRole, StoreSettings
from roquet.common.settings import update_settings
from roquet.dev import topics
from roquet.dev.loop_thread import LoopFactory
from roquet.dev.programs import (
    LOOPBACK,
    NAME_SERVER,
    BrokerProgram,
    NameServerProgram,
    Pause,
    Program,
    stop_all,
)
from roquet.errors import ClusterStateError, ConfigError, MessageError
from roquet.nameserver.config import NamesrvConfig
from roquet.protocol.records.message import check_topic

if TYPE_CHECKING:
    from roquet.broker.server import Broker

COMMIT_LOG_FILE_SIZE: Final = 64 * 1024 * 1024
INDEX_SLOTS: Final = 50_000
INDEX_ENTRIES: Final = 200_000
ANY_SHARE: Final = 100
"""Percent. A broker never refuses messages or deletes files because the drive is nearly full."""
DEFAULT_NAMES: Final = ("dev",)
_OWN: Final = frozenset(
    {
        "namesrvAddr",
        "brokerName",
        "brokerId",
        "brokerIP1",
        "brokerIP2",
        "bindAddress",
        "listenPort",
        "storePathRootDir",
        "messageDelayLevel",
    }
)
"""Settings of brokers that the cluster itself, or another argument, decides."""

Setting = str | int | bool
T = TypeVar("T")


class Cluster:
    """A name server and brokers in this process, on free ports of the loopback interface.

    Use it with `with`, or with `async with` inside of coroutines; or call `start` and `stop`. It
    serves any client: each of its programs has a thread and an event loop of its own. All methods
    may be called from any thread, and return when what they do is done, which takes milliseconds.

    The programs have names: a master that of its broker (`broker-a`), its slaves `broker-a:1`,
    `broker-a:2` (broker name and id), the name server `name-server`. Methods take these names; with
    a single broker it may be left out. `start` without a name starts all that does not run.

    :param folder: keeps the stores. None means a temporary folder, which `stop` deletes.
    :param port: the port of the name server; 0 means any free port. Brokers listen on free ports.
    :param brokers: the names of the masters, or how many: 3 means `broker-a` to `broker-c`.
    :param slaves: how many slaves each of them has.
    :param settings: further settings of all brokers, by the names that they have in broker.conf,
        such as `{"flushDiskType": "SYNC_FLUSH"}`.
    :param delay_levels: the waiting times of the delay levels 1, 2, ..., in the form of
        `messageDelayLevel`. The first retry of a failed message has level 3.
    :param failed: called from a thread of the cluster when a sync of a store failed. That broker
        serves no more, and `stop` raises the error.
    :param loop_factory: makes the event loops, for example `uvloop.new_event_loop`.
    :raises ConfigError: an argument cannot be used; the message names it.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        port: int = 0,
        brokers: int | Sequence[str] = DEFAULT_NAMES,
        slaves: int = 0,
        settings: Mapping[str, Setting] | None = None,
        delay_levels: str = DELAY_LEVELS,
        failed: Callable[[], None] = lambda: None,
        loop_factory: LoopFactory | None = None,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigError(f"port={port}: allowed is a number from 0 up to 65535")
        if slaves < 0:
            raise ConfigError(f"slaves={slaves}: allowed is a number from 0")
        if not isinstance(delay_levels, str):
            raise ConfigError(f"delay_levels={delay_levels!r}: give a text such as '1s 5s 10s'")
        self._folder = None if folder is None else Path(folder)
        self._temporary: Path | None = None
        self._wanted_port = port
        self._names = _names(brokers)
        self._slaves = slaves
        self._pairs = _pairs(settings or {})
        self._delay_levels = delay_levels
        self._failed = failed
        self._loop_factory = loop_factory
        self._name_server: NameServerProgram | None = None
        self._brokers: dict[str, BrokerProgram] = {}
        for config in self._configs(Path()):
            check(replace(config, namesrv_addr=""))  # its port is not known yet

    # the whole cluster

    @property
    def port(self) -> int:
        """The port of the name server."""
        return self._wanted_port if self._name_server is None else self._name_server.port

    @property
    def name_server(self) -> str:
        """The address of the name server for clients, `host:port`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the masters."""
        return self._names

    def start(self, name: str | None = None) -> None:
        """Start the cluster, or again what of it was killed or stopped; with a name only that.

        When this returns, brokers are registered, slaves follow their masters, and clients are
        served. A program that starts again has its former ports, and its store as it was left.

        :raises ClusterStateError: it runs already.
        """
        if name is not None:
            self._start_again(name)
            return
        if self._name_server is not None:
            away = self.away()
            if not away:
                raise ClusterStateError("the cluster runs already")
            for each in away:
                self._start_again(each)
            return
        folder = self._folder
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="roquet-"))
        try:
            self._start_all(folder)
        except BaseException:
            self.stop()
            raise

    def _start_all(self, folder: Path) -> None:
        names = NamesrvConfig(
            listen_port=self._wanted_port,
            bind_address=LOOPBACK,
            kv_config_path=str(folder / "namesrv" / "kvConfig.json"),
            config_store_path=str(folder / "namesrv" / "namesrv.properties"),
        )
        self._name_server = NameServerProgram(names, self._loop_factory)
        self._name_server.start()
        for config in self._configs(folder):
            name = _program_name(config)
            broker = BrokerProgram(name, config, self._failed, self._loop_factory)
            self._brokers[name] = broker
            broker.start()
        for broker in self._slaves_of(*self._names):
            broker.wait_until_it_follows()

    def _start_again(self, name: str) -> None:
        program = self._program(name)
        program.start()
        if program is self._name_server:
            for broker in self._brokers.values():
                if broker.is_active:
                    broker.register()
        elif (
            isinstance(program, BrokerProgram)
            and program.config.is_slave
            and self._brokers[program.config.broker_name].is_active
        ):
            program.wait_until_it_follows()

    def stop(self, name: str | None = None) -> None:
        """Stop the cluster, the name server last; with a name, stop one of its programs cleanly.

        A cluster that is stopped already stays so.

        :raises ClusterStateError: the program of that name does not run.
        :raises NotWritten, DriveFailed: as `Broker.stop`; everything is stopped nevertheless.
        """
        if name is not None:
            self._program(name).stop()
            return
        try:
            stop_all(self._from_the_outside_in())
        finally:
            self._name_server = None
            self._brokers = {}
            if self._temporary is not None:
                shutil.rmtree(self._temporary)
                self._temporary = None

    def _from_the_outside_in(self) -> Iterator[Program]:
        """Slaves, then masters, then the name server; all resumed, as they call each other."""
        programs = [*self._brokers.values(), *filter(None, (self._name_server,))]
        for program in programs:
            if program.is_paused:
                program.resume()
        yield from sorted(self._brokers.values(), key=lambda each: not each.config.is_slave)
        yield from programs[len(self._brokers) :]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        # Not in a thread: a cancelled wait for it would leave a cluster that nobody stops.
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    # one program

    def kill(self, name: str | None = None) -> None:
        """End a program as `kill -9` does: connections drop, files stay as they are.

        `start` with its name starts it again; a broker then recovers its store.

        :raises ClusterStateError: it does not run.
        """
        self._program(name).kill()

    def pause(self, name: str | None = None) -> Pause:
        """Let a program stand still: it accepts connections and bytes, and answers nothing.

        This is what clients see of a process after `kill -STOP`. It lasts until `resume`, or until
        the end of a `with` block: `with cluster.pause("broker-a"):`.

        :raises ClusterStateError: it does not run, or is paused already.
        """
        return self._program(name).pause()

    def resume(self, name: str | None = None) -> None:
        """Let a paused program go on; it handles what came meanwhile.

        :raises ClusterStateError: it is not paused.
        """
        self._program(name).resume()

    def advance(self, seconds: float) -> None:
        """Let time pass at once for what the brokers store.

        Delayed messages and retries that become due are delivered, expired files may be deleted,
        and new messages have later store times. Timeouts, heartbeats and periods stay those of the
        real clock.

        :param seconds: at least 0.
        :raises ClusterStateError: a broker is paused.
        """
        if not 0 <= seconds < float("inf"):
            raise ConfigError(f"seconds={seconds}: allowed is a number from 0")
        for broker in self._brokers.values():
            if broker.is_paused:
                raise ClusterStateError(f"{broker.name} is paused, resume it before `advance`")
        for broker in self._brokers.values():
            broker.advance(round(seconds * 1000))

    def address(self, name: str | None = None) -> str:
        """The address of a broker, `host:port`."""
        return self._broker(name).address

    def store_folder(self, name: str | None = None) -> Path:
        """The folder of a broker's store."""
        return self._broker(name).config.store_folder

    def ask(self, question: Callable[[Broker], T], name: str | None = None) -> T:
        """Call a function with the running `Broker`, in the thread that owns it.

        :raises ClusterStateError: it does not run, or is paused.
        """
        return self._broker(name).ask(question)

    def away(self) -> tuple[str, ...]:
        """The names of the programs that were killed or stopped, and not started again."""
        programs = [*filter(None, (self._name_server,)), *self._brokers.values()]
        return tuple(each.name for each in programs if not each.is_running)

    # topics and groups

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic at every running master; clients know its route when this returns.

        :raises ConfigError: there can be no topic of this name, or with so many queues.
        """
        if queues < 1:
            raise ConfigError(f"queues={queues}: allowed is a number from 1")
        try:
            check_topic(topic)
        except MessageError as error:
            raise ConfigError(f"topic={topic!r}: {error}") from None
        masters = self._masters()
        topics.create(topic, queues, [master.address for master in masters])
        for master in masters:
            master.register()

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its messages at every running master."""
        self._delete_topics((topic,))

    def delete_group(self, group: str) -> None:
        """Delete a consumer group: its offsets, its retry topic, its dead letter topic."""
        topics.delete_group(group, [master.address for master in self._masters()])
        self._delete_topics(topics.topics_of_group(group))

    def _delete_topics(self, names: Sequence[str]) -> None:
        masters = self._masters()
        topics.delete(names, [master.address for master in masters])
        for master in masters:
            master.register()
        if self._program(NAME_SERVER).is_active:
            topics.forget(names, self.name_server)

    # programs by name

    def _masters(self) -> list[BrokerProgram]:
        """The masters that serve now."""
        masters = (self._broker(name) for name in self._names)
        return [master for master in masters if master.is_active]

    def _slaves_of(self, *names: str) -> list[BrokerProgram]:
        return [
            broker
            for broker in self._brokers.values()
            if broker.config.is_slave and broker.config.broker_name in names
        ]

    def _program(self, name: str | None) -> Program:
        if name == NAME_SERVER and self._name_server is not None:
            return self._name_server
        return self._broker(name)

    def _broker(self, name: str | None) -> BrokerProgram:
        if self._name_server is None:
            raise ClusterStateError("the cluster is not started")
        if name is None and len(self._brokers) == 1:
            (name,) = self._brokers
        found = self._brokers.get(name or "")
        if found is None:
            what = "a name is needed" if name is None else f"there is no {name!r}"
            names = ", ".join((*self._brokers, NAME_SERVER))
            raise ConfigError(f"{what} in this cluster: allowed are {names}")
        return found

    # settings

    def _configs(self, folder: Path) -> Iterator[BrokerConfig]:
        """The configurations of all masters, then of all slaves, which need the masters' ports."""
        for broker_id in range(self._slaves + 1):
            for name in self._names:
                yield self._config(folder, name, broker_id)

    def _config(self, folder: Path, name: str, broker_id: int) -> BrokerConfig:
        """A configuration with small files: the broker starts quickly and needs little room."""
        base = replace(
            BrokerConfig(),
            filters=FilterSettings(enable_property_filter=True),
            store=StoreSettings(
                mapped_file_size_commit_log=COMMIT_LOG_FILE_SIZE,
                max_hash_slot_num=INDEX_SLOTS,
                max_index_num=INDEX_ENTRIES,
                disk_max_used_space_ratio=ANY_SHARE,
                disk_space_clean_forcibly_ratio=ANY_SHARE,
                disk_space_warning_level_ratio=ANY_SHARE,
            ),
        )
        own = {
            "namesrvAddr": self.name_server,
            "brokerName": name,
            "brokerId": str(broker_id),
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "bindAddress": LOOPBACK,
            "listenPort": "0",
            "storePathRootDir": str(folder / _name_of(name, broker_id).replace(":", "-") / "store"),
            "messageDelayLevel": self._delay_levels,
        }
        config, warnings = update_settings(base, [*self._pairs, *own.items()], "settings")
        if warnings:
            raise ConfigError(warnings[0])
        if config.is_slave:
            raise ConfigError("brokerRole=SLAVE in settings: give the number of slaves as `slaves`")
        if broker_id:
            role = replace(config.replication, broker_role=BrokerRole.SLAVE)
            config = replace(config, replication=role)
        return config


def _name_of(broker: str, broker_id: int) -> str:
    return f"{broker}:{broker_id}" if broker_id else broker


def _program_name(config: BrokerConfig) -> str:
    return _name_of(config.broker_name, config.broker_id)


def _names(brokers: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(brokers, int):
        if not 1 <= brokers <= len(ascii_lowercase):
            raise ConfigError(
                f"brokers={brokers}: allowed is 1 to {len(ascii_lowercase)}, or names"
            )
        return tuple(f"broker-{letter}" for letter in ascii_lowercase[:brokers])
    names = (brokers,) if isinstance(brokers, str) else tuple(brokers)
    if not names or len(set(names)) < len(names) or not all(map(_is_name, names)):
        raise ConfigError(
            f"brokers={names}: allowed are different names of letters, digits, - and _"
        )
    return names


def _is_name(name: str) -> bool:
    plain = name.replace("-", "").replace("_", "")
    return name != NAME_SERVER and plain.isascii() and plain.isalnum()


def _pairs(settings: Mapping[str, Setting]) -> list[tuple[str, str]]:
    for name in settings:
        if name in _OWN:
            raise ConfigError(f"{name} in settings: the cluster decides it, leave it out")
    return [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in settings.items()
    ]
