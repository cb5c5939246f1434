"""The fast path of pulls: answers pulls that match a cached header template without decoding them.

See docs/storage/performance.md#header-templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from roquet.broker.handlers.fastpath.cache import TemplateCache
from roquet.broker.metrics.traffic import Traffic
from roquet.protocol.bodies.tables import GroupConfig
from roquet.protocol.filters.tags import Filter
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.remoting.command import BINARY, Command, decode
from roquet.protocol.templates.request import is_number
from roquet.protocol.templates.response import ResponseTemplate
from roquet.storage.fetch import Fetched, FetchStatus
from roquet.storage.log.commit_log import CommitLog
from roquet.transport.connection import Connection
from roquet.transport.handling import SlowPath


@dataclass(frozen=True, slots=True)
class PullTerms:
    """The checked parameters that all pulls of one group, topic and subscription share.

    They are valid until a request takes the slow path, which may change groups and topics.

    :param read_queues: of the topic.
    """

    group: GroupConfig
    filter: Filter
    read_queues: int


FindTerms = Callable[[PullHeader, int], PullTerms]
"""(header, queue id) -> the terms of a pull with this header, but this queue id. Raises Refused."""
CommitAndFetch = Callable[[PullHeader, Filter, int, int, int], Fetched]
"""(header, filter, queue id, queue offset, commit offset) -> commits the offset, and what a pull
fetches that has this header, but these numbers."""


class FastPull:
    """The fast path of one connection's pulls: answers those that find messages.

    A pull that finds none goes to the slow path, which fetches again.

    :param suggest: the broker id that the answer suggests for the next pull.
    :param found: the response template of FOUND.
    :param log: the store's log, which may skip checks of its files during one `take`.
    """

    def __init__(
        self,
        connection: Connection,
        find_terms: FindTerms,
        commit_and_fetch: CommitAndFetch,
        suggest: Callable[[GroupConfig, Fetched], int],
        found: ResponseTemplate,
        traffic: Traffic,
        log: CommitLog,
    ) -> None:
        self._connection = connection
        self._find_terms = find_terms
        self._commit_and_fetch = commit_and_fetch
        self._suggest = suggest
        self._found = found
        self._traffic = traffic
        self._log = log
        self._templates: TemplateCache[_LearntPull] = TemplateCache()
        self._terms: dict[_LearntPull, PullTerms] = {}
        """The terms found since the last slow-path request, which may change groups and topics."""

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """Answer these frames in order; `slow_path` answers those that match no template."""
        self._log.remember_checked_file(True)
        try:
            return self._take(frames, slow_path)
        finally:
            self._log.remember_checked_file(False)
            self._terms.clear()

    def _take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        answers: list[bytes] = []
        for frame in frames:
            found = self._templates.match(frame)
            answer = self._answer(frame, *found) if found is not None else None
            if answer is None:
                answer = self._templates.by_slow_path(frame, slow_path)
                self._terms.clear()
            if answer is not None:
                answers.append(answer)
        return answers

    def _answer(
        self, frame: bytes, known: _LearntPull, header_end: int, values: tuple[bytes, ...]
    ) -> bytes | None:
        """The answer to a pull that matches a template; None if the slow path has to answer it."""
        opaque, queue_id, queue_offset, commit_offset = values
        if (
            len(frame) > header_end
            or not (queue_id + queue_offset + commit_offset).isdigit()
            or not (known.is_binary or is_number(opaque))
        ):
            return None
        began_ms, header, queue = self._traffic.clock_ms(), known.header, int(queue_id)
        try:
            terms = self._terms.get(known)
            if terms is None or queue >= terms.read_queues:
                terms = self._terms[known] = self._find_terms(header, queue)
            fetched = self._commit_and_fetch(
                header, terms.filter, queue, int(queue_offset), int(commit_offset)
            )
        except Exception as error:
            return self._connection.failure(decode(frame), error).encode()
        if fetched.status is not FetchStatus.FOUND:
            return None
        suggested, next_offset = (
            b"%d" % self._suggest(terms.group, fetched),
            b"%d" % fetched.next_offset,
        )
        low, high = b"%d" % fetched.min_offset, b"%d" % fetched.max_offset
        size = fetched.size
        self._connection.dispatcher.made(size)
        self._traffic.given(
            header.topic, header.consumer_group, queue, fetched.count, size, began_ms
        )
        if not known.is_binary:
            return b"".join(
                (
                    self._found.json(opaque, (suggested, next_offset, low, high), size),
                    *fetched.records,
                )
            )
        sizes = (len(suggested), len(next_offset), len(low), len(high))
        first, second, third, fourth, fifth = self._found.binary(sizes, size)
        head = (first, opaque, second, suggested, third, next_offset, fourth, low, fifth, high)
        return b"".join((*head, *fetched.records))

    def learn(self, request: Command, header: PullHeader) -> None:
        """Cache the header template of the pull that `take` has just given to the slow path."""
        header_template = self._templates.learn(request)
        if header_template is not None and not request.body:
            is_binary = request.header_type == BINARY
            self._templates.add(header_template, _LearntPull(header, is_binary))


@dataclass(frozen=True, slots=True, eq=False)
class _LearntPull:
    """The header that pulls of one template have, but for queue id and offsets."""

    header: PullHeader
    is_binary: bool
