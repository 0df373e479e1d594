"""Tests mirror the folders. Shared parts are imported by full name, as in `from tests.runtime.faulty_env import …`."""
