"""Stores that need a network: PostgreSQL and object storage behind the runtime's protocols, by URL."""
