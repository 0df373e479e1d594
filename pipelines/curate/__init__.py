"""Curation: from a snapshot of a lake to training sets that can be rebuilt, explained and taken back."""
