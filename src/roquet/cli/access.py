"""The options of commands that ask a cluster: keys to sign with, and TLS.

What is secret comes from the environment or a file, as command lines are for everybody on a machine to see.
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
    ACCESS_FILE: "A file with what follows, as lines NAME=VALUE; mqadmin's tools.yml is one.",
    "accessKey": "Sign requests: the account.",
    "useTLS": "Encrypt connections, and verify whose they are.",
    "tlsCaFile": "Whom to trust, PEM; the machine's authorities without it.",
    "tlsCertFile": "The certificate to show, PEM.",
    "tlsKeyFile": "Its key, PEM.",
    "tlsVerify": "What must be right about the server's certificate: all, its authority, nothing.",
}


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def _variable(name: str) -> str:
    return "_".join(["ROQUET", *_words(name)]).upper()


def access_options(command: F) -> F:
    """Adds the options; `access_values` then tells what they and the environment say."""
    for name in reversed((ACCESS_FILE, *NAMES)):
        if name not in SECRETS:
            _option(name)(command)
    return command


def _option(name: str) -> Callable[[F], F]:
    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
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
    """What the running command was told, under the names that `roquet.admin.access` and Spark's options have.

    :raises ConfigError: the file cannot be used.
    """
    secrets = {name: text for name in SECRETS if (text := os.environ.get(_variable(name)))}
    given: dict[str, str] = click.get_current_context().meta.get(_GIVEN, {})
    return with_access_file(secrets | given)


def access() -> Access:
    """The same as a value.

    :raises ConfigError: something cannot be used, or is missing beside another thing.
    """
    return access_of(access_values())
