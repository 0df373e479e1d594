"""The journal in a temporary folder of the agents' tests serves here too."""

from __future__ import annotations

from tests.runtime.agent.conftest import bench as bench
