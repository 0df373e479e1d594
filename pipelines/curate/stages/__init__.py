"""The stages of curation, in order: each a plain function from candidates to drops with reasons."""
