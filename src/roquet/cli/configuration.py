"""What a file of settings and a command's options say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roquet.cli.output import end, say
from roquet.common.properties import Properties
from roquet.common.settings import read_file
from roquet.errors import ConfigError

if TYPE_CHECKING:
    from roquet.broker.config.broker import BrokerConfig

T = TypeVar("T")


def configured(
    read: Callable[[list[tuple[str, str]], str], tuple[T, list[str]]],
    path: Path | None,
    options: list[tuple[str, str]],
) -> T:
    """What the file and, stronger, the options say; what the file says in vain goes to stderr."""
    try:
        properties = Properties() if path is None else read_file(path)
        config, warnings = read([*properties.pairs, *options], "" if path is None else str(path))
    except ConfigError as error:
        end(str(error))
    for warning in (*(f"{path}: {warning}" for warning in properties.warnings), *warnings):
        say(f"warning: {warning}")
    return config


def broker_config(path: Path | None, name_servers: str | None) -> BrokerConfig:
    """A broker's; it knows its file, where that is given."""
    from roquet.broker.config.broker import read_config

    config = configured(read_config, path, [("namesrvAddr", name_servers)] if name_servers else [])
    return config if path is None else replace(config, broker_config_path=str(path))
