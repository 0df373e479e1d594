"""One module per source format over the importer contract (`contract.py`); `registry.py` knows them by name."""
