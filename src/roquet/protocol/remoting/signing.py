"""Requests signed with a secret key, as brokers with `aclEnable=true` want them.

The signed text are the values of all header fields in the order of their names, and behind them the body. Names come
in the order of Java's strings, which for ASCII, and there are no others, is that of their bytes.

See docs/pitfalls.md#trap-67 and docs/protocol/remoting.md#signed-requests.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from roquet.errors import ConfigError
from roquet.protocol.remoting.command import Command

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""The field that 4.9 brokers leave out when they check a signature, and 5.x ones for callers up to 4.9.3."""
_VERSION_WITHOUT_IT: Final = 399


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who signs requests; the secret is in no `repr`.

    :param security_token: for accounts that are lent for a time, beside their two keys.
    :raises ConfigError: a key is empty.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ConfigError(
                    f"credentials: {name} is empty, requests are signed with both keys"
                )

    def encode(self, request: Command) -> bytes:
        """The frame of a request that is not changed any more, signed."""
        return self.signed(request).encode()

    def signed(self, request: Command) -> Command:
        """A copy of the request with its signature; a former one does not count."""
        fields = {**request.fields, ACCESS_KEY: self.access_key}
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = self._signature(signed_text(fields, request.body))
        if UNIQUE_KEY_QUERY in fields:  # so that brokers of both kinds leave out the same
            return replace(request, fields=fields, version=_VERSION_WITHOUT_IT)
        return replace(request, fields=fields)

    def _signature(self, text: bytes) -> str:
        return b64encode(hmac.digest(self.secret_key.encode(), text, "sha1")).decode()


def signed_text(fields: Mapping[str, str], body: bytes) -> bytes:
    """What is signed of a request that will go out with these fields, the signature's own one apart."""
    values = (value for name, value in sorted(fields.items()) if name not in _NOT_SIGNED)
    return "".join(values).encode() + body


_NOT_SIGNED: Final = frozenset((SIGNATURE, UNIQUE_KEY_QUERY))
