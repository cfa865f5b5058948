"""Devices that fail: the errors that are the machine's fault and not the program's. No torch."""

from __future__ import annotations

import re


class DeviceError(Exception):
    """The device that this rank must train on is not there."""


FAILED_DEVICE = re.compile(
    r"\bDeviceError\b|uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|CUDA driver initialization failed|system not yet initialized|Hardware stack error"
)
"""In the text of an error. What a faulty kernel causes too, such as a launch failure, is not among them."""
