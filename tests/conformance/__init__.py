"""Conformance: what vastrun assumes of Vast's live service, and whether the service does it."""
