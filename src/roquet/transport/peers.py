"""All peers of one process together: how many may connect, and what is held for them and from them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from roquet.common import descriptors
from roquet.common.limited_log import LimitedLog
from roquet.common.shared_places import Shares, network_of
from roquet.transport.limits import PeerLimits
from roquet.transport.loop_watchdog import LoopWatchdog

log = logging.getLogger(__name__)

TIGHT: Final = 64 * 1024
"""Bytes that may wait for one peer while half of what may wait for all is reached."""
SILENT: Final = "silent"
"""Why most connections end that are ended here; too usual for the log."""
CALM_S = 30.0
"""So long there must have been file descriptors until that is told: while connections wait, one comes and goes."""
_LOOKS_PER_TIMEOUT: Final = 12
_FILES_KEPT: Final = 4
"""One of so many file descriptors is left to files: a broker that cannot open its next log file takes no message."""


@dataclass(slots=True)
class Held:
    """Bytes of one kind that are held for peers: now, at most so far, and how many may be."""

    limit: int
    size: int = 0
    peak: int = 0

    def note(self, size: int) -> None:
        self.size, self.peak = size, max(self.peak, size)

    @property
    def step(self) -> int:
        """After so many more bytes it is time to look again: so more than the limit and a sixteenth is never held."""
        return max((self.limit - self.size) // 2, self.limit // 16, 1)


class Peer(Protocol):
    """One connection, as it is counted here; times are the event loop's, in seconds."""

    peer_host_name: str
    peer_address: str

    def held(self, now: float) -> tuple[int, int]:
        """Bytes of answers it has not taken, and of requests it has not been answered."""
        ...

    def still_s(self, now: float) -> tuple[float, float]:
        """For how long it has taken no byte, and for how long it has sent none."""
        ...

    def why_end(self, now: float) -> str:
        """Why its time is over; empty while it is not."""
        ...

    def set_unread_max(self, size: int) -> None:
        """So many bytes may wait for it from now on."""
        ...

    def abort(self) -> None: ...


class Peers:
    """Keeps: `connections` are those admitted and not lost. Sizes are asked of the connections, never added up on the
    way, so they cannot drift; when it is time to ask is told by `passed`, which knows how much they can have grown.

    :param connections_max: so many connections may be open; 0: any number.
    """

    def __init__(self, limits: PeerLimits | None = None, connections_max: int = 0) -> None:
        self.limits = PeerLimits() if limits is None else limits
        self.connections_max = connections_max
        self.connections: dict[Peer, None] = {}
        self.answers = Held(self.limits.answer_bytes_max)
        self.requests = Held(self.limits.request_bytes_max)
        self.connections_peak = self.refused = self.ended = 0
        self.unread_max = self.limits.answer_bytes_per_connection_max
        self._of_network: dict[str, dict[Peer, None]] = {}
        self._shares = Shares[str]()
        self.descriptors = Descriptors()
        self.watch = LoopWatchdog(self.limits.loop_delay_warning_ms)
        self._limited_log = LimitedLog(log)
        self._descriptors_max = descriptors.limit()
        self._until_look = 0
        self._plan_next_look()

    # who may come

    def admits(self, peer: Peer) -> bool:
        """Take a new connection, or say that it is one too many."""
        network = network_of(peer.peer_host_name)
        why_not = self._why_not(peer.peer_host_name, network)
        if why_not:
            self.refused += 1
            now = asyncio.get_running_loop().time()
            self._limited_log.warning(
                why_not, now, "connection refused: %s peer=%s", why_not, peer.peer_address
            )
            return False
        self.connections[peer] = None
        self.connections_peak = max(self.connections_peak, len(self.connections))
        self._of_network.setdefault(network, {})[peer] = None
        self._shares.add(network)
        return True

    def _why_not(self, host: str, network: str) -> str:
        of_one_max = self.limits.connections_per_address_max
        if (
            of_one_max
            and sum(peer.peer_host_name == host for peer in self._of_network.get(network, ()))
            >= of_one_max
        ):
            return f"too many are open from one address, connectionsPerAddressMax={of_one_max}"
        what = ""
        if self.connections_max and len(self.connections) >= self.connections_max:
            what = f"connectionsMax={self.connections_max}"
        elif not descriptors.are_left(descriptors.FOR_CONNECTIONS, self._descriptors_max):
            what = "no file descriptors to spare, raise the limit of open files (ulimit -n)"
        return f"too many are open, {what}" if what and not self._make_room(network, what) else ""

    def _make_room(self, newcomer: str, what: str) -> bool:
        """Nobody else gets in while one address has all places: the one with most gives one, that of its connections
        which has been silent for longest.
        """
        if not self._shares.owe(newcomer):
            return False
        now = asyncio.get_running_loop().time()
        peers = self._of_network[next(iter(self._shares.crowds))]
        ended = max(peers, key=lambda peer: peer.still_s(now)[1])
        text = "connection ended: another address needs its place, %s peer=%s connections_of_it=%d"
        count = len(peers)
        self._limited_log.warning("place", now, text, what, ended.peer_address, count)
        self.ended += 1
        self.closed(ended)
        ended.abort()
        return True

    def broken(self, peer: Peer, why: str) -> None:
        """A peer broke the protocol and is ended; anybody who scans ports does."""
        self.ended += 1
        now = asyncio.get_running_loop().time()
        self._limited_log.warning(
            "broken",
            now,
            "connection ended: it broke the protocol: %s peer=%s",
            why,
            peer.peer_address,
        )

    def failed(self, peer: Peer, code: int, why: str) -> None:
        """A request of a peer ended in an error that nobody foresaw; one that is repeated gets a line a minute."""
        now = asyncio.get_running_loop().time()
        kind = f"failed {code} {peer.peer_host_name}"
        self._limited_log.tell(
            logging.ERROR,
            kind,
            now,
            "request failed: code=%s peer=%s error=%s",
            code,
            peer.peer_address,
            why,
        )

    def no_room(self, code: int, error: OSError) -> None:
        """A request found no room on the drive; so do those of all peers, and one line a minute says it."""
        now = asyncio.get_running_loop().time()
        text = "no room on the drive, requests that need it are refused, make room there: code=%s file=%s error=%s"
        self._limited_log.tell(
            logging.ERROR, "no room", now, text, code, error.filename, error.strerror
        )

    def closed(self, peer: Peer) -> None:
        if peer not in self.connections:
            return
        del self.connections[peer]
        network = network_of(peer.peer_host_name)
        self._shares.drop(network)
        del self._of_network[network][peer]
        if not self._of_network[network]:
            del self._of_network[network]

    # what is held

    def passed(self, size: int) -> None:
        """Told of each write, and of each read that left something to wait: by so much more may be held now."""
        self._until_look -= size
        if self._until_look <= 0:
            self.look()

    def look(self) -> None:
        """Ask what is held; where that is too much, end connections."""
        now = asyncio.get_running_loop().time()
        answers = requests = 0
        for peer in self.connections:
            of_answers, of_requests = peer.held(now)
            answers += of_answers
            requests += of_requests
        self.answers.note(answers)
        self.requests.note(requests)
        if answers > self.answers.limit:
            self._end_worst(self.answers, 0, "answers that are not read", "answerBytesMax", now)
        if requests > self.requests.limit:
            self._end_worst(
                self.requests,
                1,
                "requests that are not whole or not answered",
                "requestBytesMax",
                now,
            )
        self._tighten(self.answers.size > self.answers.limit // 2)
        self._plan_next_look()

    def _plan_next_look(self) -> None:
        self._until_look = min(self.answers.step, self.requests.step)

    def _tighten(self, is_tight: bool) -> None:
        """With half of the memory in use each peer gets less ahead of its reading, before any has to go."""
        most = self.limits.answer_bytes_per_connection_max
        unread_max = min(most, TIGHT) if is_tight else most
        if unread_max != self.unread_max:
            self.unread_max = unread_max
            for peer in list(self.connections):
                peer.set_unread_max(unread_max)

    def _end_worst(self, held: Held, kind: int, what: str, setting: str, now: float) -> None:
        """End connections until a quarter is free: first those that hold most bytes for the longest time without moving
        any. Who moves bytes is among the last, however much it holds.
        """
        sizes = {peer: peer.held(now)[kind] for peer in self.connections}
        ranked = sorted(
            sizes, key=lambda peer: sizes[peer] * max(peer.still_s(now)[kind], 0.001), reverse=True
        )
        before, ended = held.size, 0
        for peer in ranked:
            if held.size <= held.limit - held.limit // 4:
                break
            peer.abort()
            held.size -= sizes[peer]
            ended += 1
        self.ended += ended
        worst = ranked[0]
        self._limited_log.warning(
            setting,
            now,
            "connections ended: peers hold too much memory by %s held=%d %s=%d ended=%d freed=%d first=%s "
            "first_bytes=%d first_still_s=%.0f",
            *(what, before, setting, held.limit, ended, before - held.size),
            *(worst.peer_address, sizes[worst], worst.still_s(now)[kind]),
        )

    # whose time is over

    async def sweep(
        self, peers: Callable[[], Iterable[Peer]], also: Callable[[], None] | None = None
    ) -> None:
        """End, for ever, the connections among `peers` that are silent, do not read, or never finish a frame.

        :param also: called each time.
        """
        timeout_s = min(self.limits.idle_s, self.limits.partial_s)
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(timeout_s / _LOOKS_PER_TIMEOUT)
            now = loop.time()
            for peer in list(peers()):
                why = peer.why_end(now)
                if why:
                    self.ended += 1
                    peer.abort()
                    if why != SILENT:
                        self._limited_log.warning(
                            "sweep", now, "connection ended: %s peer=%s", why, peer.peer_address
                        )
            self.look()
            if also is not None:
                also()

    def figures(self) -> dict[str, str]:
        """What is held now, was at most at any look, and may be."""
        self.look()
        figures = {
            "connections": len(self.connections),
            "connectionsPeak": self.connections_peak,
            "connectionsMax": self.connections_max,
            "connectionsRefused": self.refused,
            "connectionsEnded": self.ended,
        }
        for name, held in (("answerBytes", self.answers), ("requestBytes", self.requests)):
            figures |= {name: held.size, f"{name}Peak": held.peak, f"{name}Max": held.limit}
        return {name: str(figure) for name, figure in figures.items()} | self.watch.figures()


def connections_allowed(limits: PeerLimits) -> int:
    """`connectionsMax`, or where that is 0 the limit of open files, less a quarter for the files themselves.

    :return: 0 where there is no limit.
    """
    if limits.connections_max:
        return limits.connections_max
    allowed = descriptors.limit()
    return allowed - allowed // _FILES_KEPT


class Descriptors:
    """Whether the process has file descriptors left, told when that changes: the loop closes what it cannot accept, or
    leaves it waiting, and says nothing, or says it thousands of times.
    """

    def __init__(self) -> None:
        self.are_left = True
        self._failed_at = 0.0

    def look(self) -> None:
        now = asyncio.get_running_loop().time()
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if self.are_left:
                log.error(
                    "no connection can be accepted: %s; raise the limit of open files (ulimit -n)",
                    error.strerror,
                )
            self.are_left, self._failed_at = False, now
            return
        if not self.are_left and now - self._failed_at >= CALM_S:
            log.warning("connections are accepted again: there are file descriptors")
            self.are_left = True
