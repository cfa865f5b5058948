"""Telemetry: metrics, profiles and tracking of a training, without measurable cost."""
