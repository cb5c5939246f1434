"""What Apache's programs send, as captured."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from roquet.protocol.remoting.command import Command, decode

_FRAMES: Final = Path(__file__).parent / "frames"


@cache
def known_requests() -> dict[int, list[Command]]:
    """Captured requests by their code."""
    found: dict[int, list[Command]] = {}
    for path in sorted(_FRAMES.rglob("*.request.bin")):
        request = decode(path.read_bytes()[4:])
        found.setdefault(request.code, []).append(request)
    return found
