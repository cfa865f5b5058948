"""Benchmarks: `python -m benchmarks` prints every figure the README claims. Timings are never tests."""
