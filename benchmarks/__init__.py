"""Benchmarks: `python -m benchmarks` prints every figure of docs/benchmarks.md. Timings are never tests."""
