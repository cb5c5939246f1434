"""Options of the commands that connect to a cluster: name servers, access keys, TLS.

Secrets are read from the environment or a file and have no option, because all users of a machine
can read its command lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from roquet.admin.access import ACCESS_FILE, NAMES, SECRETS, Access, access_of, with_access_file

F = TypeVar("F", bound=Callable[..., Any])

_GIVEN: Final = f"{__name__}.given"
_HELP: Final = {
    ACCESS_FILE: "Read the following options from this file, in lines NAME=VALUE; mqadmin's "
    "tools.yml is such a file.",
    "accessKey": "Sign requests with this access key. The secret key comes from ROQUET_SECRET_KEY "
    "or the access file.",
    "useTLS": "Use TLS, and verify the certificates of servers.",
    "tlsCaFile": "The certificate authorities to trust (PEM); by default the system's.",
    "tlsCertFile": "The client's certificate (PEM).",
    "tlsKeyFile": "The private key of the client's certificate (PEM).",
    "tlsVerify": "Verify authority and host name of server certificates (full), the authority "
    "only (ca), or nothing (none).",
}


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _variable(name: str) -> str:
    return "_".join(["ROQUET", *_words(name)]).upper()


def access_options(command: F) -> F:
    """Add the access options to a command; `access_values` returns their values."""
    for name in reversed((ACCESS_FILE, *NAMES)):
        if name not in SECRETS:
            _option(name)(command)
    return command


def cluster_options(command: F) -> F:
    """Add the options that say which cluster to connect to, and how: `name_server` and access."""
    return _name_server(access_options(command))


_name_server = click.option(
    "-n",
    "--namesrv",
    "name_server",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT;...",
    help="The name servers. [env: NAMESRV_ADDR]",
)


def _option(name: str) -> Callable[[F], F]:
    def keep(context: click.Context, _: click.Parameter, value: object) -> None:
        if value:
            context.meta.setdefault(_GIVEN, {})[name] = "true" if value is True else str(value)

    kinds: dict[str, Any] = {
        "useTLS": {"is_flag": True},
        "accessKey": {"metavar": "KEY"},
        "tlsVerify": {"type": click.Choice(["full", "ca", "none"])},
    }
    kind = kinds.get(name, {"type": click.Path(path_type=Path), "metavar": "FILE"})
    text = f"{_HELP[name]} [env: {_variable(name)}]"
    flag = "--" + "-".join(_words(name))
    return click.option(
        flag, expose_value=False, callback=keep, envvar=_variable(name), help=text, **kind
    )


def access_values() -> dict[str, str]:
    """Return the values of the running command's access options, environment and access file.

    Their names are those of `roquet.admin.access`, which are also names of Spark options.

    :raises ConfigError: the access file cannot be read.
    """
    secrets = {name: text for name in SECRETS if (text := os.environ.get(_variable(name)))}
    given: dict[str, str] = click.get_current_context().meta.get(_GIVEN, {})
    return with_access_file(secrets | given)


def access() -> Access:
    """Return what `access_values` returns as an `Access`.

    :raises ConfigError: a value is invalid, or one is missing that another one needs.
    """
    return access_of(access_values())
