"""Every test of the contract meets every provider."""

from collections.abc import Iterator

import pytest

from tests.contract.markets import MAKERS, PRETENDED, SYSTEMS
from vastrun.testing.contract import ProviderSetup

_NEEDS_A_STOCK = ("test_a_job_that_fits_nowhere_gets_no_offer",)
_NEEDS_SSH = (
    "test_the_users_own_command_runs_in_the_folder_of_the_box",
    "test_the_users_own_programs_reach_the_folder_of_the_box_by_ssh",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A provider whose boxes run no command is not asked to run one."""
    if "provider_setup" in metafunc.fixturenames:
        names = [name for name in MAKERS if name not in PRETENDED or not _needs_a_real_one(metafunc)]
        needs = {name: [pytest.mark.needs(name)] for name in SYSTEMS}
        setups = [pytest.param(name, marks=needs.get(name, [])) for name in names]
        metafunc.parametrize("provider_setup", setups, indirect=True)


def _needs_a_real_one(metafunc: pytest.Metafunc) -> bool:
    return "shell" in metafunc.fixturenames or metafunc.function.__name__ in _NEEDS_A_STOCK


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip what needs OpenSSH's client by the rules of tests/parts.py."""
    if getattr(item, "originalname", "") in _NEEDS_SSH:
        item.add_marker(pytest.mark.needs("ssh"))


@pytest.fixture(scope="module")
def provider_setup(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProviderSetup]:
    """A provider, for all tests of a file: a machine to hold, or a server, starts once."""
    setup = MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    yield setup
    setup.clear()
    setup.close()
