"""Providers of other packages: found by entry point, imported on first use, named when at fault."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import Market, Terminal
from vastrun.launcher.app import App
from vastrun.launcher.commands.doctor import CheckedSetup, Health, examine
from vastrun.launcher.commands.settings import read_settings
from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers import PROVIDERS, plugin_names, provider_class
from vastrun.launcher.providers.local import LocalProvider
from vastrun.launcher.providers.plugins import FIELDS, VERBS

Install = Callable[..., None]
WHOLE = """
from vastrun.launcher.providers.local import LocalProvider
class {name}(LocalProvider):
    name = "{provider}"
    @classmethod
    def of(cls, context):
        return cls(context.state / "lab", context.python, clock=context.clock, environ=context.environ)
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package as pip does: its module, and its metadata with the entry point."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(package: str, provider: str, module: str, code: str, *, version: str = "1.0") -> None:
        (folder / f"{module}.py").write_text(code)
        metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[vastrun.providers]\n{provider} = {module}:Found\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install


def made(name: str, folder: Path) -> Provider:
    """The provider, as the launcher makes it."""
    return App({**os.environ, "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}).provider(name)


def whole(provider: str) -> str:
    return WHOLE.format(name="Found", provider=provider)


def test_an_installed_package_adds_a_provider(install: Install, tmp_path: Path) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", whole("lab"))
    assert plugin_names() == ("lab",)
    provider = made("lab", tmp_path)
    assert isinstance(provider, LocalProvider)
    assert provider.instances() == []


def test_a_plugin_is_asked_for_all_that_the_launcher_uses_of_a_provider() -> None:
    port = {*Provider.__annotations__, *(name for name in vars(Provider) if not name.startswith("_"))}
    assert {*VERBS, *FIELDS} == port


def test_the_settings_may_name_it(install: Install, tmp_path: Path) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", whole("lab"))
    file = tmp_path / "config.yaml"
    file.write_text("provider: lab\n")
    assert read_settings(file).settings.provider == "lab"
    file.write_text("provider: lob\n")
    known = f"expected one of {', '.join(PROVIDERS)}, lab, got 'lob'; did you mean lab?"
    assert read_settings(file).faults == (f"{file}:1: provider: {known}",)


def test_an_unknown_name_is_answered_with_all_that_are_installed(install: Install) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", "raise RuntimeError('imported')")
    with pytest.raises(UsageError, match=r"no provider is called 'lob'") as caught:
        provider_class("lob")
    assert caught.value.hint == f"installed providers: {', '.join(PROVIDERS)}, lab (vastrun-lab 1.0)"


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", whole("lab"))
    install("lab-machines", "lab", "lab_machines", whole("lab"), version="2.1")
    with pytest.raises(UsageError) as caught:
        provider_class("lab")
    assert str(caught.value) == "several packages have a provider 'lab': lab-machines 2.1 and vastrun-lab 1.0"
    assert "uninstall all but one" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("import not_there_at_all", "cannot be imported: ModuleNotFoundError: No module named 'not_there_"),
        ("raise RuntimeError('no licence')", "cannot be imported: RuntimeError: no licence"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit: 0"),
        ("def (", "cannot be imported: SyntaxError: "),
        ("", "cannot be imported: AttributeError: module 'vastrun_lab' has no attribute 'Found'"),
        ("class Found: pass", "vastrun_lab:Found has no classmethod `of`"),
        (f"{whole('lab')}\nFound.of = 3", "vastrun_lab:Found has no classmethod `of`"),
        (
            "class Found:\n search = rent = instances = connect = 1\n def of(context): pass",
            "it lacks machine, destroy",
        ),
    ],
)
def test_an_unusable_plugin_is_named_with_its_package(install: Install, code: str, fault: str) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", code)
    with pytest.raises(UsageError) as caught:
        provider_class("lab")
    assert str(caught.value).startswith(f"provider 'lab' of the package vastrun-lab 1.0: {fault}")
    assert "vastrun-lab" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("class Found:\n @staticmethod\n def of(context): raise OSError('no file')", "it lacks search, rent"),
        (
            "class Made: pass\nclass Maker:\n def of(self, context): return Made()\nFound = Maker()",
            "it lacks search, rent, instances, machine, connect, destroy, name,",
        ),
        (
            "class Maker:\n def of(self, context): raise OSError('no file')\nFound = Maker()",
            "cannot be made: OSError: no file",
        ),
        (
            "class Maker:\n def of(self, context): raise SystemExit(0)\nFound = Maker()",
            "cannot be made: SystemExit: 0",
        ),
        (whole("other"), "its provider calls itself 'other'"),
    ],
)
def test_what_a_plugin_makes_is_checked_too(install: Install, tmp_path: Path, code: str, fault: str) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", code)
    with pytest.raises(UsageError) as caught:
        made("lab", tmp_path)
    assert str(caught.value).startswith(f"provider 'lab' of the package vastrun-lab 1.0: {fault}")


def test_what_a_provider_says_of_itself_reaches_the_user(install: Install, tmp_path: Path) -> None:
    code = (
        "from vastrun.launcher.core.errors import AuthError\n"
        "class Maker:\n def of(self, context): raise AuthError('no key')\nFound = Maker()"
    )
    install("vastrun-lab", "lab", "vastrun_lab", code)
    with pytest.raises(VastrunError, match=r"^no key$"):
        made("lab", tmp_path)


def test_a_built_in_provider_is_found_without_asking_and_cannot_be_replaced(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("vastrun-lab", "local", "vastrun_lab", whole("local"))
    assert plugin_names() == ()
    with monkeypatch.context() as patch:
        patch.setattr("importlib.metadata.entry_points", None)
        patch.setattr("vastrun.launcher.providers.plugins.entry_points", None)
        assert provider_class("local") is LocalProvider


def test_a_name_that_no_command_line_would_take_is_left_out(install: Install) -> None:
    install("vastrun-lab", "\x1b[31mlab", "vastrun_lab", whole("lab"))
    assert plugin_names() == ()


def test_the_doctor_looks_at_plugins_and_one_that_is_broken_keeps_nothing_else_from_being_looked_at(
    install: Install, tmp_path: Path
) -> None:
    install("vastrun-lab", "lab", "vastrun_lab", whole("lab"))
    install("vastrun-bad", "bad", "vastrun_bad", "import not_there_at_all")
    app = App({"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **os.environ})
    setup = CheckedSetup(
        state=tmp_path, python=sys.executable, ledger=app.ledger, provider=app.provider,
        chosen="lab", now=app.now,
    )  # fmt: skip
    findings = {finding.name: finding for finding in examine(setup)}
    assert findings["bad"].health is Health.WARN
    assert "vastrun-bad 1.0" in findings["bad"].text
    assert findings["lab orphans"].health is findings["local orphans"].health is Health.OK


def test_a_plugin_that_exits_within_a_command_is_an_error_of_that_command(tmp_path: Path) -> None:
    class Exits(Market):
        def search(self, spec: JobSpec) -> Sequence[Offer]:
            raise SystemExit(0)

    terminal = Terminal(tmp_path)
    terminal.market = Exits(terminal.clock, [Training()], usd_per_hour=1.0)
    end = terminal.launch()
    assert (end.exit_code, "SystemExit: 0" in end.stderr) == (1, True)
