"""Readers of the exports of other products, each by its format."""
