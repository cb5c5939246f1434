"""Limits across all connections of one process: how many are open, how many bytes they hold."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from roquet.common import descriptors
from roquet.common.failure_streak import FailureStreak
from roquet.common.limited_log import LimitedLog
from roquet.common.loop_time import now_s
from roquet.common.shared_places import Shares, network_of
from roquet.transport.limits import PeerLimits
from roquet.transport.loop_watchdog import LoopWatchdog

log = logging.getLogger(__name__)

TIGHT: Final = 64 * 1024
"""Answer bytes that may be unread by one peer once half of `answerBytesMax` is in use."""
SILENT: Final = "silent"
"""Why most connections are closed; too frequent for the log."""
CALM_S = 30.0
"""Seconds for which descriptors must be free before that is logged.

While connections wait to be accepted, one becomes free now and then.
"""
_LOOKS_PER_TIMEOUT: Final = 12
"""Sweeps per timeout: a connection is closed at most a twelfth of its timeout late."""
_FILES_KEPT: Final = 4
"""Divisor: a quarter of the file descriptors is left to files.

A broker that cannot open its next log file accepts no messages.
"""


@dataclass(slots=True)
class Held:
    """Bytes held for peers: the present sum, its peak and its limit."""

    limit: int
    size: int = 0
    peak: int = 0

    def note(self, size: int) -> None:
        self.size, self.peak = size, max(self.peak, size)

    @property
    def step(self) -> int:
        """Bytes after which the sum is taken again: it exceeds the limit by a sixteenth at most."""
        return max((self.limit - self.size) // 2, self.limit // 16, 1)


class Named(Protocol):
    """The other side of a connection, as log lines name it."""

    peer_host_name: str
    peer_address: str


class Peer(Named, Protocol):
    """One connection, as `Peers` sees it. Times are the event loop's, in seconds."""

    def held(self, now: float) -> tuple[int, int]:
        """Bytes of answers that it has not read, and of its requests that are not answered."""
        ...

    def still_s(self, now: float) -> tuple[float, float]:
        """Seconds since it last read a byte, and since it last sent one."""
        ...

    def why_end(self, now: float) -> str:
        """Why it has to be closed; empty if it has not."""
        ...

    def set_unread_max(self, size: int) -> None:
        """Set the number of unread bytes above which it counts as not reading."""
        ...

    def abort(self) -> None: ...


class Peers:
    """Admits connections, and closes those that hold too much memory for too long.

    Sizes are asked of the connections and never added up on the way, so they cannot drift. `passed`
    counts how much they can have grown, and by that decides when to ask.

    Invariant: `connections` are those admitted and not lost.

    :param connections_max: connections that may be open; 0: any number.
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

    # which connections are admitted

    def admits(self, peer: Peer) -> bool:
        """Count a new connection; False if it is one too many and has to be closed."""
        network = network_of(peer.peer_host_name)
        why_not = self._why_not(peer.peer_host_name, network)
        if why_not:
            self.refused += 1
            text = "connection refused: peer=%s reason=%s"
            self._limited_log.warning(why_not, text, peer.peer_address, why_not)
            return False
        self.connections[peer] = None
        self.connections_peak = max(self.connections_peak, len(self.connections))
        self._of_network.setdefault(network, {})[peer] = None
        self._shares.add(network)
        return True

    def _why_not(self, host: str, network: str) -> str:
        per_address_max = self.limits.connections_per_address_max
        if per_address_max:
            peers = self._of_network.get(network, ())
            if sum(peer.peer_host_name == host for peer in peers) >= per_address_max:
                return f"too many from one address, connectionsPerAddressMax={per_address_max}"
        limit = ""
        if self.connections_max and len(self.connections) >= self.connections_max:
            limit = f"connectionsMax={self.connections_max}"
        elif not descriptors.are_left(descriptors.FOR_CONNECTIONS, self._descriptors_max):
            limit = "no file descriptors to spare, raise the limit of open files (ulimit -n)"
        if not limit or self._make_room(network, limit):
            return ""
        return f"too many connections, {limit}"

    def _make_room(self, newcomer: str, limit: str) -> bool:
        """Close a connection of the address with the most, so that `newcomer` gets one.

        Otherwise one address could keep all others out. The connection that has been silent for
        longest is closed.

        :param limit: the limit that is reached, for the log.
        :returns: False if the newcomer's address has about as many itself.
        """
        if not self._shares.largest_must_yield_to(newcomer):
            return False
        now = now_s()
        peers = self._of_network[next(iter(self._shares.largest))]
        ended = max(peers, key=lambda peer: peer.still_s(now)[1])
        text = "connection closed, another address needs one: peer=%s of_its_network=%d limit=%s"
        self._limited_log.warning("place", text, ended.peer_address, len(peers), limit)
        self.ended += 1
        self.closed(ended)
        ended.abort()
        return True

    def broken(self, peer: Named, why: str) -> None:
        """Log a connection that is closed because its peer broke the protocol.

        Port scanners do so often: one line a minute for all peers.
        """
        self.ended += 1
        text = "connection closed, the peer broke the protocol: peer=%s error=%s"
        self._limited_log.warning("broken", text, peer.peer_address, why)

    def failed(self, peer: Named, code: int, why: str) -> None:
        """Log an unexpected error of a request: one line a minute per request code and host."""
        kind = f"failed {code} {peer.peer_host_name}"
        text = "request failed: code=%s peer=%s error=%s"
        self._limited_log.tell(logging.ERROR, kind, text, code, peer.peer_address, why)

    def no_room(self, code: int, error: OSError) -> None:
        """Log a request that found no room on the drive: one line a minute for all peers."""
        text = (
            "no room on the drive, requests that need more room are refused, make room there: "
            "code=%s file=%s error=%s"
        )
        self._limited_log.tell(logging.ERROR, "no room", text, code, error.filename, error.strerror)

    def closed(self, peer: Peer) -> None:
        """Count `peer` no more; harmless if it was never admitted or is removed already."""
        if peer not in self.connections:
            return
        del self.connections[peer]
        network = network_of(peer.peer_host_name)
        self._shares.drop(network)
        del self._of_network[network][peer]
        if not self._of_network[network]:
            del self._of_network[network]

    # bytes held

    def passed(self, size: int) -> None:
        """Count bytes by which the sums can have grown: each write, each read that left bytes."""
        self._until_look -= size
        if self._until_look <= 0:
            self.look()

    def look(self) -> None:
        """Add up what all connections hold, and close some if it is too much."""
        now = now_s()
        answers = requests = 0
        for peer in self.connections:
            of_answers, of_requests = peer.held(now)
            answers += of_answers
            requests += of_requests
        self.answers.note(answers)
        self.requests.note(requests)
        if answers > self.answers.limit:
            self._end_worst(self.answers, 0, "unread answers", "answerBytesMax", now)
        if requests > self.requests.limit:
            what = "incomplete or unanswered requests"
            self._end_worst(self.requests, 1, what, "requestBytesMax", now)
        self._tighten(self.answers.size > self.answers.limit // 2)
        self._plan_next_look()

    def _plan_next_look(self) -> None:
        self._until_look = min(self.answers.step, self.requests.step)

    def _tighten(self, is_tight: bool) -> None:
        """While half of the memory is in use, allow each peer fewer unread bytes.

        That comes first; connections are closed only if it does not help.
        """
        most = self.limits.answer_bytes_per_connection_max
        unread_max = min(most, TIGHT) if is_tight else most
        if unread_max != self.unread_max:
            self.unread_max = unread_max
            for peer in list(self.connections):
                peer.set_unread_max(unread_max)

    def _end_worst(self, held: Held, kind: int, what: str, setting: str, now: float) -> None:
        """Close connections until a quarter of the limit is free.

        The first are those that held the most bytes for the longest time without reading (or
        sending) any. A peer that goes on reading is among the last, however much it holds.

        :param kind: index in `Peer.held` and `Peer.still_s`: 0 answers, 1 requests.
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
            "connections closed, too many bytes of %s: held=%d %s=%d closed=%d freed=%d first=%s "
            "first_bytes=%d first_still_s=%.0f",
            *(what, before, setting, held.limit, ended, before - held.size),
            *(worst.peer_address, sizes[worst], worst.still_s(now)[kind]),
        )

    # timeouts

    async def sweep(
        self, peers: Callable[[], Iterable[Peer]], also: Callable[[], None] | None = None
    ) -> None:
        """Close connections that are silent, do not read, or never complete a frame; never returns.

        :param peers: returns the connections to check.
        :param also: called at each sweep.
        """
        timeout_s = min(self.limits.idle_s, self.limits.partial_s)
        while True:
            await asyncio.sleep(timeout_s / _LOOKS_PER_TIMEOUT)
            now = now_s()
            for peer in list(peers()):
                why = peer.why_end(now)
                if why:
                    self.ended += 1
                    peer.abort()
                    if why != SILENT:
                        text = "connection closed: peer=%s reason=%s"
                        self._limited_log.warning("sweep", text, peer.peer_address, why)
            self.look()
            if also is not None:
                also()

    def figures(self) -> dict[str, str]:
        """The figures for admin tools: present values, peaks and limits."""
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
    """The number of connections that may be open; 0: any number.

    It is `connectionsMax`, or if that is 0 three quarters of the process's limit of open files.
    """
    if limits.connections_max:
        return limits.connections_max
    allowed = descriptors.limit()
    return allowed - allowed // _FILES_KEPT


class Descriptors:
    """Logs when the process runs out of file descriptors, and when it has some again.

    The event loop drops connections that it cannot accept, or leaves them waiting. It logs nothing,
    or thousands of lines.
    """

    def __init__(self) -> None:
        self._streak = FailureStreak()
        self._failed_at = 0.0

    def look(self) -> None:
        now = now_s()
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if self._streak.failed():
                log.error(
                    "no connection can be accepted, raise the limit of open files (ulimit -n): "
                    "error=%s",
                    error.strerror,
                )
            self._failed_at = now
            return
        if now - self._failed_at >= CALM_S and self._streak.ended():
            log.warning("connections are accepted again, file descriptors are free")
