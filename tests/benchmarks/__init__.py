"""The benchmarks that others read off: what they write, from what they are given."""
