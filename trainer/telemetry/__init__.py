"""Telemetry: what a training tells of itself, at no cost that can be measured."""
