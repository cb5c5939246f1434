"""The header templates that one connection's fast path knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, Generic, TypeVar

from roquet.protocol.remoting.command import BINARY, Command
from roquet.protocol.templates.request import OPAQUE, VARYING, HeaderTemplate, learn, template_key
from roquet.transport.handling import SlowPath

_ALWAYS_LEARNT: Final = 64
"""For this many unmatched frames of a connection, each template is cached."""
_LEARN_EVERY: Final = 100
"""Of later unmatched frames, only each 100th is cached: caching costs more than parsing, and would
be wasted on a connection whose requests are all different."""
_FORMS_MAX: Final = 256
"""Template keys per connection; at this many, all templates are dropped."""
_FORMS_PER_KEY_MAX: Final = 16
"""Templates per key, that is, of one header length: a frame is compared with each of them."""
_HEADER_SIZE_MAX: Final = 8 * 1024
"""Bytes of the largest header that is cached: a header may have 16 MiB of unknown fields."""
_SIZE_MAX: Final = 1024 * 1024
"""Bytes of all headers that are cached for one connection."""


class CachedTemplate:
    """A header template, prepared for comparing frames with it.

    A frame matches if its header ends at `header_end` and pieces 0, 2, 4, ... of `unpack_from`
    equal `constants`. `pick` takes opaque, the numbers and the texts, in this order, from the
    pieces.

    :param texts: names of the properties that `pick` takes.
    """

    def __init__(self, header_template: HeaderTemplate, texts: Sequence[str] = ()) -> None:
        names = (OPAQUE, *VARYING[header_template.command.code].numbers, *texts)
        self.is_binary = header_template.command.header_type == BINARY
        self.header_end = header_template.header_end
        self.unpack_from = header_template.pieces.unpack_from
        self.constants = header_template.constants
        self.pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(
            *(2 * header_template.places[name] + 1 for name in names)
        )


F = TypeVar("F", bound=CachedTemplate)


class TemplateCache(Generic[F]):
    """The header templates of one connection's fast path.

    Invariant: `known` holds all templates by their `template_key`; their headers have at most
    `_SIZE_MAX` bytes together. A frame is kept for learning only while the slow path handles it.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, list[F]] = {}
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
        self.known.clear()
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

    def add(self, template: F) -> None:
        self._size += template.header_end
        if len(self.known) >= _FORMS_MAX or self._size > _SIZE_MAX:
            self.clear()
            self._size = template.header_end
        alike = self.known.setdefault(template_key(template.constants[0]), [])
        alike.append(template)
        del alike[:-_FORMS_PER_KEY_MAX]
