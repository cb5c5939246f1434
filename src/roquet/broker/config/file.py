"""Writes a broker's new role into the configuration file that it was started with."""

from __future__ import annotations

from pathlib import Path

from roquet.broker.config.broker import BrokerConfig
from roquet.common.files import replace_with_backup
from roquet.common.properties import changed


def save_role(config: BrokerConfig) -> None:
    """Write role and id into the broker's configuration file, if it has one.

    All other lines stay as they are. The old file is kept as `.bak`.

    :raises OSError, ValueError: the file cannot be read or written.
    """
    if not config.broker_config_path:
        return
    path = Path(config.broker_config_path)
    text = path.read_text(encoding="utf-8")
    new = {"brokerRole": config.replication.broker_role.name, "brokerId": str(config.broker_id)}
    replace_with_backup(path, changed(text, new).encode())
