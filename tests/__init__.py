"""Tests mirror the folders. Shared parts are imported by full name: `from tests.runtime.faulty_env import FaultyEnv`."""
