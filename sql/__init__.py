"""Views, audits, selections, reports and warm-tier DDL: text only, read through `importlib.resources`."""
