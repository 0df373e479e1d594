"""The contract: ids, event types, value codec, canonical JSON, keys, chain, canonical history, state, tables."""
