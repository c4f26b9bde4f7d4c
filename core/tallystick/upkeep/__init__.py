"""Upkeep: proof of forgetting, erasure, retention, backup, migration, export and import,
diagnosis: decisions, no SQL.
"""
