"""Turns responses with error codes into exceptions.

Only the remark shows that access control refused a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from roquet.errors import AccessDenied, ResponseError
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command

_DENIAL: Final = re.compile(
    r"(?:Acl|Authentication|Authorization)Exception: (.*?)(?:, org\.apache\.|$)", re.DOTALL
)
"""Matches remarks of access control; their code is 1, as of any error in a broker.

The part after the comma is a line of Apache's sources, and is dropped.
"""
_ADVICE: Final = (
    (
        "No accessKey",
        "the broker takes signed requests only: give credentials, an access key and its secret key",
    ),
    (
        "No acl config",
        "the broker knows no such access key: check it, or add the account to its plain_acl.yml",
    ),
    ("Check signature failed", "the secret key is not the one of this access key"),
    (
        "Need admin permission",
        "this takes an account with admin: true in the broker's plain_acl.yml",
    ),
)
_OTHER_ADVICE: Final = "the account lacks this permission: add it to the broker's plain_acl.yml"


def checked(
    response: Command, address: str, accepted: Iterable[int] = (ResponseCode.SUCCESS,)
) -> Command:
    """Return `response` if its code is one of `accepted`.

    :raises ResponseError: its code is another one.
    """
    if response.code in accepted:
        return response
    remark = response.remark or ""
    denial = _DENIAL.search(remark)
    if denial is None:
        raise ResponseError(response.code, remark, address)
    reason = denial[1]
    advice = next((advice for words, advice in _ADVICE if words in reason), _OTHER_ADVICE)
    raise AccessDenied(response.code, reason, address, advice)
