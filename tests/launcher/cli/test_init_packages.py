"""`vastrun init`: what a program needs installed, and the key of W&B."""

from pathlib import Path

import pytest

from tests.launcher.cli.first_jobs import init, written


def test_packages_that_the_image_lacks_are_installed(folder: Path) -> None:
    (folder / "mine.py").write_text("")
    (folder / "train.py").write_text("import torch, einops, json, mine, sklearn.svm\nfrom . import other\n")
    init()
    assert written(folder).setup == ("pip install einops scikit-learn",)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("hydra", "hydra-core"),
        ("neuralop", "neuraloperator"),
        ("dotenv", "python-dotenv"),
        ("git", "gitpython"),
    ],
)
def test_a_package_is_installed_by_its_own_name(folder: Path, module: str, package: str) -> None:
    (folder / "train.py").write_text(f"import {module}\n")
    init()
    assert written(folder).setup == (f"pip install {package}",)


def test_what_the_program_imports_is_installed_unless_it_does_without(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "train.py").write_text(
        "import boto3, parts.near\n"
        "try:\n    import apex\nexcept ImportError:\n    import timm\n"
        "try:\n    import flash_attn, einops\nexcept (OSError, ModuleNotFoundError):\n    pass\n"
        "try:\n    import zarr\nexcept OSError:\n    raise\n"
        "try:\n    import wandb\nexcept:\n    pass\n"
    )
    init()
    spec = written(folder)
    assert spec.setup == ("pip install boto3 timm zarr",)
    assert [secret.name for secret in spec.secrets] == ["WANDB_API_KEY"]


@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        ("requirements.txt", "", "pip install -r requirements.txt"),
        ("pyproject.toml", '[project]\ndependencies = ["einops"]', "pip install ."),
        ("pyproject.toml", "[tool.poetry.dependencies]", "pip install ."),
        ("setup.py", "setup(install_requires=[])", "pip install ."),
        ("setup.py", "setup(packages=find_packages())", "pip install . einops"),
    ],
)
def test_the_packages_that_the_folder_itself_names_are_installed(
    folder: Path, file: str, text: str, command: str
) -> None:
    (folder / file).write_text(text)
    (folder / "train.py").write_text("import einops\n")
    init()
    assert written(folder).setup == (command,)


@pytest.mark.parametrize("line", [".", "-e .", "--editable=.", "./", ".[train]"])
def test_a_folder_that_its_requirements_install_is_on_no_path(folder: Path, line: str) -> None:
    (folder / "lab").mkdir()
    (folder / "lab" / "__init__.py").write_text("")
    (folder / "tools").mkdir()
    (folder / "tools" / "fit.py").write_text("import lab\n")
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    init("tools/fit.py")
    assert written(folder).env == {}


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("torch==2.0.1", True),
        ("torch ~= 2.1", True),
        ("torchvision==0.15.2+cu118", True),
        ("torch>=2.0", False),
        ("torch", False),
        ("torchmetrics==1.4.0", False),
        ("# torch==2.0.1", False),
    ],
)
def test_a_torch_that_replaces_the_images_is_told(folder: Path, line: str, is_told: bool) -> None:
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    (folder / "train.py").write_text("import torch\n")
    init()
    text = (folder / "job.yaml").read_text()
    assert (f"# {line} of requirements.txt replaces the torch of the image" in text) is is_told
    assert written(folder).setup == ("pip install -r requirements.txt",)


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ('[project]\ndependencies = ["numpy", "torch~=1.13.0"]', True),
        ('[project]\ndependencies = ["torch>=1.13"]', False),
        ('[project]\ndependencies = [{}, "torch==1.13.0"]', True),
        ('project = "x"', False),
        ("[project]\ndependencies = 3", False),
        ("not toml", False),
    ],
)
def test_a_torch_that_a_package_pins_is_told(folder: Path, text: str, is_told: bool) -> None:
    (folder / "pyproject.toml").write_text(text)
    (folder / "train.py").write_text("import torch\n")
    init()
    told = "of pyproject.toml replaces the torch of the image" in (folder / "job.yaml").read_text()
    assert told is is_told


@pytest.mark.parametrize(
    ("file", "text", "allowed"),
    [
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8,<3.11"', ">=3.8,<3.11"),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "~3.9"', "~3.9"),
        ("pyproject.toml", '[project]\nrequires-python = "<=3.10"', "<=3.10"),
        ("setup.py", 'setup(name="a", python_requires="==3.7.*")', "==3.7.*"),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8,<3.13"', None),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8"', None),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.9"', None),
        ("requirements.txt", 'python = "<3.11"', None),
    ],
)
def test_a_package_for_an_older_python_than_the_images_is_told(
    folder: Path, file: str, text: str, allowed: str | None
) -> None:
    (folder / file).write_text(text)
    (folder / "train.py").write_text("import torch\n")
    init()
    job = (folder / "job.yaml").read_text()
    assert (f"# {file} allows Python {allowed} only; the image has 3.11 or newer." in job) is (
        allowed is not None
    )


def test_a_program_that_reports_to_wandb_gets_its_key(folder: Path) -> None:
    (folder / "train.py").write_text("import wandb\n")
    init()
    assert [secret.name for secret in written(folder).secrets] == ["WANDB_API_KEY"]


@pytest.mark.parametrize(
    ("line", "imports", "setup"),
    [
        ("tqdm", "import torchvision.transforms as T", "pip install -r requirements.txt torchvision"),
        ("tqdm", "import torchvision, torchaudio", "pip install -r requirements.txt torchvision torchaudio"),
        ("TorchVision>=0.20", "import torchvision", "pip install -r requirements.txt"),
        ("tqdm", "try:\n    import torchvision\nexcept ImportError: pass", "pip install -r requirements.txt"),
        ("tqdm", "import torch", "pip install -r requirements.txt"),
    ],
)
def test_packages_beside_torch_are_installed_too(folder: Path, line: str, imports: str, setup: str) -> None:
    (folder / "requirements.txt").write_text(f"{line}\n")
    (folder / "train.py").write_text(f"{imports}\n")
    assert init("train.py").exit_code == 0
    assert written(folder).setup == (setup,)
