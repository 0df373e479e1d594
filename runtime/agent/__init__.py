"""The durable agent: one sans-I/O core that yields requests, and two thin drivers (threads, asyncio)."""
