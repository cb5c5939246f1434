"""Hosts of a network: each a network namespace of this machine, with the kernel's own TCP and
nothing else shared.

Every host has one device, a TUN, whose packets a thread of this process carries to the others as
their links allow: so links are as bad as a test wants them, whatever the kernel has been built
with. Names carry the process id, and addresses mean something inside the namespaces alone, so that
two runs do not meet.

Invariant: what was made here is gone when the `with` block ends, also after a failure.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import permutations
from types import TracebackType
from typing import Self

from tests.interop.processes import Host
from tests.network.link import Direction, Quality

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
DEVICE = "tun0"
PACKET_SIZE_MAX = 65_536
PACKETS_AT_ONCE = 64
DESTINATION = slice(16, 20)


def require_network() -> None:
    """Or a skipped test that says why there can be none."""
    import pytest

    reason = _why_none()
    if reason:
        pytest.skip(f"NOT JUDGED ON A REAL NETWORK: {reason}")


@cache
def _why_none() -> str:
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no ip in PATH (iproute2)"
    try:
        with Network("probe"):
            return ""
    except OSError as error:
        return f"no network namespace with a TUN device: {error}"


class Network:
    """Hosts by name, and the wire between them; every link is good until it is told otherwise.

    What a thread of this process starts or connects to inside `at` belongs to that host.
    """

    def __init__(self, *names: str, seed: int = 0) -> None:
        self.hosts = {
            name: Host(f"10.77.0.{number}", ("ip", "netns", "exec", _namespace(name)))
            for number, name in enumerate(names, start=1)
        }
        self._directions = {pair: Direction(f"{seed} {pair}") for pair in permutations(names, 2)}
        self._wire: _Wire | None = None
        self._made = ExitStack()

    def link(self, one: str, other: str, quality: Quality) -> None:
        """What both directions between two hosts are like from now on."""
        self.one_way(one, other, quality)
        self.one_way(other, one, quality)

    def one_way(self, source: str, target: str, quality: Quality) -> None:
        assert self._wire is not None
        with self._wire.lock:
            self._directions[source, target].become(quality)

    @contextmanager
    def at(self, name: str) -> Iterator[None]:
        """This thread is at the host: its new sockets and child processes are."""
        with _inside(f"/var/run/netns/{_namespace(name)}"):
            yield

    def __enter__(self) -> Self:
        with ExitStack() as making:
            devices = {name: self._make(making, name) for name in self.hosts}
            by_address = {
                (devices[source], _packed(self.hosts[target])): (direction, devices[target])
                for (source, target), direction in self._directions.items()
            }
            self._wire = making.enter_context(_Wire(list(devices.values()), by_address))
            self._made = making.pop_all()
        return self

    def _make(self, making: ExitStack, name: str) -> int:
        namespace, host = _namespace(name), self.hosts[name]
        _run("ip", "netns", "add", namespace)
        making.callback(_run, "ip", "netns", "delete", namespace)
        with self.at(name):
            device = _tun(DEVICE)
            making.callback(os.close, device)
            _run("ip", "link", "set", "lo", "up")
            _run("ip", "address", "add", f"{host.ip}/24", "dev", DEVICE)
            _run("ip", "link", "set", DEVICE, "up")
        return device

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._made.close()


class _Wire:
    """The thread that carries packets.

    :param roads: by the device that a packet came out of, and where it wants to go.
    """

    def __init__(
        self, devices: list[int], roads: dict[tuple[int, bytes], tuple[Direction, int]]
    ) -> None:
        self.lock = threading.Lock()
        """Whoever changes a direction holds it."""
        self._devices = devices
        self._roads = roads
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for device in self._devices:
                selector.register(device, selectors.EVENT_READ)
            while not self._stopping.is_set():
                ready = selector.select(self._wait_s())
                with self.lock:
                    for key, _ in ready:
                        self._take_from(key.fd)
                    self._deliver()

    def _wait_s(self) -> float:
        due = [
            direction.due_s for direction, _ in self._roads.values() if direction.due_s is not None
        ]
        return min(0.1, max(0.0, min(due) - time.monotonic())) if due else 0.1

    def _take_from(self, device: int) -> None:
        for _ in range(PACKETS_AT_ONCE):
            try:
                packet = os.read(device, PACKET_SIZE_MAX)
            except BlockingIOError:
                return
            road = self._roads.get((device, packet[DESTINATION]))
            if (
                packet[0] >> 4 == 4 and road is not None
            ):  # What the kernel says by itself over IPv6 goes nowhere.
                road[0].take(packet, time.monotonic())

    def _deliver(self) -> None:
        now_s = time.monotonic()
        for direction, device in self._roads.values():
            for packet in direction.arrived(now_s):
                with suppress(OSError):  # A packet that the other side has no room for is lost.
                    os.write(device, packet)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()


def _namespace(name: str) -> str:
    return f"roquet-{os.getpid()}-{name}"


def _packed(host: Host) -> bytes:
    return bytes(map(int, host.ip.split(".")))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(namespace)
        try:
            yield
        finally:
            _set_namespace(home)
    finally:
        os.close(home)


def _enter(namespace: str) -> None:
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        _set_namespace(descriptor)
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    """Of this thread; `os.setns` is 3.12's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _tun(name: str) -> int:
    """A new TUN device of the present namespace; its packets are read from, and written to, what is
    returned.
    """
    import fcntl

    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(device)
        raise
    return device
