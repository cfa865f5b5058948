"""Preflight: what a machine is and can do, found out before anything is fetched or trained."""
