"""Integrations: callbacks with which programs of other frameworks report, stop, save and resume.

`vastrun.integrations.transformers`, `.lightning` and `.accelerate` have one callback each, and import their
framework when they are imported. What is here needs the standard library only:

    from vastrun.integrations import StopAgreement, leave, resume_path

All of it can be used outside a run, too, where nothing is reported and there is nothing to resume.
"""

from __future__ import annotations

from vastrun.integrations.program import STOPPED, StopAgreement, leave, resume_path

__all__ = ["STOPPED", "StopAgreement", "leave", "resume_path"]
