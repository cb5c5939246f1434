"""Signs requests with a secret key, as brokers with `aclEnable=true` require.

The signed text is the values of all header fields, sorted by field name, followed by the body.
Names are sorted as Java sorts strings. For ASCII names, and there are no others, that is the order
of their bytes.

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
"""The field that is not signed: 4.9 brokers ignore it, 5.x brokers for clients up to 4.9.3."""
_VERSION_WITHOUT_IT: Final = 399


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an account, with which requests are signed. Secrets are left out of the `repr`.

    :param security_token: for temporary accounts, in addition to the two keys.
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
        """Sign a request and encode it. It must not be changed afterwards."""
        return self.signed(request).encode()

    def signed(self, request: Command) -> Command:
        """A copy of the request with a signature; an earlier signature is replaced."""
        fields = {**request.fields, ACCESS_KEY: self.access_key}
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields[SIGNATURE] = self._signature(signed_text(fields, request.body))
        if UNIQUE_KEY_QUERY in fields:  # 5.x brokers ignore the field only for this version
            return replace(request, fields=fields, version=_VERSION_WITHOUT_IT)
        return replace(request, fields=fields)

    def _signature(self, text: bytes) -> str:
        return b64encode(hmac.digest(self.secret_key.encode(), text, "sha1")).decode()


def signed_text(fields: Mapping[str, str], body: bytes) -> bytes:
    """The text to sign of a request with these fields and this body."""
    values = (value for name, value in sorted(fields.items()) if name not in _NOT_SIGNED)
    return "".join(values).encode() + body


_NOT_SIGNED: Final = frozenset((SIGNATURE, UNIQUE_KEY_QUERY))
