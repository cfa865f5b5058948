"""Key pairs of one run alone."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ssh.keys import KeyRing

RUN = "calm-heron-3f1a"


def test_a_key_pair_is_ed25519_and_names_its_run(tmp_path: Path) -> None:
    kind, _, comment = KeyRing(tmp_path).pair(RUN).public.split(" ")
    assert (kind, comment) == ("ssh-ed25519", RUN)


def test_the_public_half_belongs_to_the_private_file(tmp_path: Path) -> None:
    pair = KeyRing(tmp_path).pair(RUN)
    assert paramiko.Ed25519Key(filename=str(pair.private_path)).get_base64() == pair.public.split()[1]


def test_only_the_user_may_read_the_private_file(tmp_path: Path) -> None:
    path = KeyRing(tmp_path / "keys").pair(RUN).private_path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_launcher_that_was_killed_finds_its_key_again(tmp_path: Path) -> None:
    assert KeyRing(tmp_path).pair(RUN) == KeyRing(tmp_path).pair(RUN)


def test_two_launchers_at_once_agree_on_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        pairs = set(pool.map(lambda _: KeyRing(tmp_path).pair(RUN), range(8)))
    assert len(pairs) == 1
    assert [path.name for path in (tmp_path / RUN).iterdir()] == ["id_ed25519"]


def test_every_run_has_a_key_of_its_own(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    assert ring.pair(RUN).public.split()[1] != ring.pair("warm-otter-77aa").public.split()[1]


def test_nothing_is_left_of_a_key_that_was_forgotten(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path)
    ring.pair(RUN)
    ring.known_hosts(RUN, "7").write_text("[h]:22 ssh-ed25519 AAAA\n")
    ring.forget(RUN)
    ring.forget(RUN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "../elsewhere", "a/b", ".hidden"])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="not a name for a key"):
        KeyRing(tmp_path).forget(name)


def test_a_key_file_that_cannot_be_read_says_where_it_is(tmp_path: Path) -> None:
    path = KeyRing(tmp_path).pair(RUN).private_path
    path.write_text("not a key")
    with pytest.raises(StorageError, match=RUN) as caught:
        KeyRing(tmp_path).pair(RUN)
    assert str(path.parent) in caught.value.hint
