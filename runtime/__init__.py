"""The journal and the durable agent: intents reach the disk before effects leave the host."""

from __future__ import annotations

import logging

# One logger for the whole project; it stays silent until the application configures logging.
logging.getLogger("trajlake").addHandler(logging.NullHandler())
