"""The header templates that one connection's fast path knows."""

from __future__ import annotations

from typing import Final, TypeVar

from roquet.protocol.remoting.command import Command
from roquet.protocol.templates.request import HeaderTemplate, HeaderTemplates, learn
from roquet.transport.handling import SlowPath

_ALWAYS_LEARNT: Final = 64
"""For this many unmatched frames of a connection, each template is cached."""
_LEARN_EVERY: Final = 100
"""Of later unmatched frames, only each 100th is cached: caching costs more than parsing, and would
be wasted on a connection whose requests are all different."""
_KEYS_MAX: Final = 256
"""Header lengths of one connection's templates; at this many, all templates are dropped."""
_HEADER_SIZE_MAX: Final = 8 * 1024
"""Bytes of the largest header that is cached: a header may have 16 MiB of unknown fields."""
_SIZE_MAX: Final = 1024 * 1024
"""Bytes of all headers that are cached for one connection; beyond, all templates are dropped."""


T = TypeVar("T")


class TemplateCache(HeaderTemplates[T]):
    """The header templates of one connection's fast path.

    Invariant: the headers of all templates have at most `_SIZE_MAX` bytes together. A frame is kept
    for learning only while the slow path handles it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._unknown = b""
        self._unknown_count = 0

    def by_slow_path(self, frame: bytes, slow_path: SlowPath) -> bytes | None:
        """The slow path's answer to a frame that matches no template.

        The slow path may call `learn` for it meanwhile.
        """
        self._unknown = frame if int.from_bytes(frame[1:4], "big") <= _HEADER_SIZE_MAX else b""
        answer = slow_path(frame)
        self._unknown = b""
        return answer

    def clear(self) -> None:
        super().clear()
        self._size = 0

    def learn(self, request: Command) -> HeaderTemplate | None:
        """The header template of the frame that the slow path is handling.

        :param request: what the slow path decoded from the frame.
        :returns: None if the frame is too large to learn, if learning was skipped, or if its
            variable places cannot be marked for sure.
        """
        frame, self._unknown = self._unknown, b""
        if not frame:
            return None
        self._unknown_count += 1
        if self._unknown_count > _ALWAYS_LEARNT and self._unknown_count % _LEARN_EVERY:
            return None
        return learn(frame, request)

    def add(self, template: HeaderTemplate, learnt: T) -> None:
        self._size += template.header_end
        if len(self._known) >= _KEYS_MAX or self._size > _SIZE_MAX:
            self.clear()
            self._size = template.header_end
        super().add(template, learnt)
