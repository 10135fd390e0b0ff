"""How Hypothesis makes its examples, here and in interpreters that a test starts: imported before any test is made.

How long an example takes to make and to try depends on the machine and on what else it does; no test is about that.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("noria", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noria")
