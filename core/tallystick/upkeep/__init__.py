"""Upkeep: proof of forgetting, erasure, retention, export and import, diagnosis: decisions, no
SQL.
"""
