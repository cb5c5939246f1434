"""For all tests: how long an example may take says nothing on a machine that others use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("roquet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("roquet")
