"""SSH keys as `ssh-keygen` makes and lists them, for computers without OpenSSH's client."""

import base64
import hashlib
import sys
from pathlib import Path


def make_pair(path: Path) -> None:
    """Write a private Ed25519 key, and the public one beside it."""
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()))
    public = key.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(public + b" box\n")


def fingerprint(public: Path) -> str:
    """Return the fingerprint of a public key."""
    digest = hashlib.sha256(base64.b64decode(public.read_text().split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


if __name__ == "__main__":  # `ssh-keygen -lf` of a box
    print(f"256 {fingerprint(Path(sys.argv[-1]))} box (ED25519)")
