"""Credentials and TLS from named settings: a file, or options of commands and of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypedDict, cast

from roquet.common.settings import read_file
from roquet.errors import ConfigError
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls

ACCESS_FILE: Final = "accessFile"
_KEYS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
}
_USE_TLS: Final = "useTLS"
_TLS: Final = {
    "tlsCaFile": "ca_file",
    "tlsCertFile": "cert_file",
    "tlsKeyFile": "key_file",
    "tlsKeyPassword": "key_password",
    "tlsVerify": "verify",
}
NAMES: Final = (*_KEYS, _USE_TLS, *_TLS)
SECRETS: Final = frozenset(("secretKey", "securityToken", "tlsKeyPassword"))


class Access(TypedDict, total=False):
    """The credentials and TLS settings of connections, as keyword arguments of every client.

    Without credentials requests are not signed, without TLS they are not encrypted.
    """

    credentials: Credentials
    tls: Tls


def access_of(values: Mapping[str, str]) -> Access:
    """The access settings among `values`.

    Empty values count as absent, and names that are not in `NAMES` are ignored. A setting of TLS
    turns TLS on, unless useTLS=false.

    :raises ConfigError: a value cannot be used, or a value that it needs is missing.
    """
    given = {name: values[name] for name in NAMES if values.get(name)}
    access = Access()
    if (credentials := _credentials(given)) is not None:
        access["credentials"] = credentials
    if (tls := _tls(given)) is not None:
        access["tls"] = tls
    return access


def _credentials(given: Mapping[str, str]) -> Credentials | None:
    fields = {field: given[name] for name, field in _KEYS.items() if name in given}
    if not fields:
        return None
    for name in ("accessKey", "secretKey"):
        if name not in given:
            raise ConfigError(
                f"{name} is missing: "
                "requests are signed with accessKey and secretKey, or not at all"
            )
    return Credentials(**fields)


def _tls(given: Mapping[str, str]) -> Tls | None:
    fields = {field: given[name] for name, field in _TLS.items() if name in given}
    wanted = given.get(_USE_TLS, "true" if fields else "false").lower()
    if wanted not in ("true", "false"):
        raise ConfigError(f"{_USE_TLS}: {wanted!r} is neither true nor false")
    return Tls(**cast(dict[str, Any], fields)) if wanted == "true" else None


def with_access_file(values: Mapping[str, str]) -> dict[str, str]:
    """Add the values of the file that `accessFile` names; it may be mqadmin's `tools.yml`.

    Given values take precedence over those of the file. The file is read in this process, in a
    Spark job by the driver. Names are compared without case.

    :raises ConfigError: the file cannot be read, or has a name that is not in `NAMES`.
    """
    lower = {name.lower(): name for name in values}
    at = lower.get(ACCESS_FILE.lower())
    if at is None:
        return dict(values)
    others = {name: value for name, value in values.items() if name != at}
    file = read_access_file(Path(values[at].strip()))
    return {name: value for name, value in file.items() if name.lower() not in lower} | others


def read_access_file(path: Path) -> dict[str, str]:
    """Read an access file with lines such as `accessKey=...` or `accessKey: ...`.

    :raises ConfigError: the file cannot be read, or has a name that is not in `NAMES`.
    """
    pairs = dict(read_file(path).pairs)
    if unknown := sorted(pairs.keys() - set(NAMES)):
        raise ConfigError(f"{path}: {unknown[0]} is none of {', '.join(NAMES)}")
    return {name: _unquoted(value.strip()) for name, value in pairs.items()}


def _unquoted(value: str) -> str:
    """Remove the quotes around a value; YAML needs them for texts that look like numbers."""
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value
