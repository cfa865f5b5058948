"""Test suites for packages that extend vastrun. Needs pytest, which the installed package does not bring."""

import pytest

pytest.register_assert_rewrite("vastrun.testing.contract")
