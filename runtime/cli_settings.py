"""Verbs `init` and `config`."""

from __future__ import annotations


def init() -> None:
    """Write a commented trajlake.toml."""


def config() -> None:
    """Show the settings in force."""
