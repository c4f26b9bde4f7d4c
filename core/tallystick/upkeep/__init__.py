"""Upkeep: proof of forgetting, erasure, retention, what a run keeps in mind, export and import,
diagnosis.
"""
