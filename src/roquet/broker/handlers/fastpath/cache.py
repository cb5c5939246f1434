"""The header templates that one connection's fast path knows."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from roquet.protocol.remoting.command import Command
from roquet.protocol.templates.request import HeaderTemplate, learn
from roquet.transport.handling import SlowPath

_ALWAYS_LEARNT: Final = 64
"""For this many unmatched frames of a connection, each template is cached."""
_LEARN_EVERY: Final = 100
"""Of later unmatched frames, only each 100th is cached: caching costs more than parsing, and would
be wasted on a connection whose requests are all different."""
_KEYS_MAX: Final = 256
"""Header lengths of one connection's templates; at this many, all templates are dropped."""
_KEY_SIZE: Final = 4
"""Bytes of a header's type and length, by which templates are grouped."""
_PER_KEY_MAX: Final = 16
"""Templates of one header length: a frame is compared with each of them."""
_HEADER_SIZE_MAX: Final = 8 * 1024
"""Bytes of the largest header that is cached: a header may have 16 MiB of unknown fields."""
_SIZE_MAX: Final = 1024 * 1024
"""Bytes of all headers that are cached for one connection; beyond, all templates are dropped."""


T = TypeVar("T")


class TemplateCache(Generic[T]):
    """The header templates of one connection's fast path, each with what was learnt from it.

    Invariant: the headers of all templates have at most `_SIZE_MAX` bytes together. A frame is kept
    for learning only while the slow path handles it.

    Invariant: the header of a frame that matches a template is decoded as the one that it was
    learnt from, but with the values that `match` returns, as far as these are numbers (`is_number`)
    and safe texts (`is_safe`).
    """

    def __init__(self) -> None:
        self._known: dict[bytes, list[tuple[HeaderTemplate, T]]] = {}
        """By the first `_KEY_SIZE` bytes of the header."""
        self._size = 0
        self._unknown = b""
        self._unknown_count = 0

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def match(self, frame: bytes) -> tuple[T, int, tuple[bytes, ...]] | None:
        """Find the template of a frame.

        :returns: what was learnt, where the frame's body begins, and the values of the template's
            `names`; None if the frame matches no template.
        """
        for template, learnt in self._known.get(frame[:_KEY_SIZE], ()):
            _, header_end, unpack_from, constants, pick = template
            if len(frame) >= header_end:
                pieces = unpack_from(frame)
                if pieces[::2] == constants:
                    return learnt, header_end, pick(pieces)
        return None

    def by_slow_path(self, frame: bytes, slow_path: SlowPath) -> bytes | None:
        """The slow path's answer to a frame that matches no template.

        The slow path may call `learn` for it meanwhile.
        """
        self._unknown = frame if int.from_bytes(frame[1:4], "big") <= _HEADER_SIZE_MAX else b""
        answer = slow_path(frame)
        self._unknown = b""
        return answer

    def clear(self) -> None:
        self._known.clear()
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
        alike = self._known.setdefault(template.constants[0][:_KEY_SIZE], [])
        alike.append((template, learnt))
        del alike[:-_PER_KEY_MAX]
