"""Hostile clients as a program beside a cluster."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

from tests.interop.processes import Program
from tests.interop.roquet_cluster import RoquetCluster

ROOT: Final = Path(__file__).parents[3]


class HostileClients(Program):
    """`flood.py` against every port of a cluster; leaving the `with` block ends it."""

    def __init__(self, cluster: RoquetCluster, seed: int, seconds: float) -> None:
        super().__init__("hostile-clients")
        self._command = [
            sys.executable,
            "-m",
            "tests.fuzz.broker.flood",
            "--seed",
            str(seed),
            "--seconds",
            str(seconds),
        ]
        ports = [port for broker in cluster.brokers for port in (broker.port, broker.port - 2)]
        for port in (*ports, cluster.name_server.port):
            self._command += ["--port", str(port)]
        self._command += ["--ha-port", str(cluster.master.port + 1)]

    def start(self) -> None:
        self.launch(self._command, {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))})

    def sent(self, timeout_s: float) -> int:
        """How many requests they sent, once they have ended."""
        assert self.wait_end(timeout_s) == 0, self.log()
        counts = json.loads(self.output())
        return int(counts["sent"])
