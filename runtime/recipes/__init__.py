"""Recipes: the durable agent behind other libraries. Thin, each to be copied; nothing is imported before it is used."""
