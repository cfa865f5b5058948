"""A wheel that is small and made at once."""

import base64
import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str = "1.0", requires: str = "") -> str:
    """A wheel of that name there; its hash."""
    info = f"{name}-{version}.dist-info"
    required = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}.py": "HERE = True\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_sum(text)},{len(text)}\n" for path, text in files.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(file, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sum(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
