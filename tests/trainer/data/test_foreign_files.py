"""Files that others wrote: what is wrong with one is told with its name and that of the array."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.trainer.data.published import FILES
from vastrun.trainer import data
from vastrun.trainer.errors import DataError
from vastrun.trainer.job.data_config import DataConfig

SMALL = DataConfig(nus=(0.1,), train=3, test=1, points=16, frames=4, dt=0.01)
Damage = Callable[[h5py.File], None]


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray], **options: object) -> Damage:
    """Stores an array anew, changed."""

    def damage(file: h5py.File) -> None:
        values = change(file[name][...])
        del file[name]
        file.create_dataset(name, data=values, **options)

    return damage


def without(name: str) -> Damage:
    return lambda file: file.__delitem__(name)


def told(name: str, value: float) -> Damage:
    return lambda file: file.attrs.modify(name, value)


def to_another_file(file: h5py.File) -> None:
    del file["tensor"]
    file["tensor"] = h5py.ExternalLink("/etc/hostname.h5", "/tensor")


def to_a_group_of_another_file(file: h5py.File) -> None:
    other = Path(file.filename).with_name("other.h5")
    file.copy("0000", h5py.File(other, "w"), name="0000")
    del file["0000"]
    file["0000"] = h5py.ExternalLink(other, "/0000")


def to_another_file_by_a_detour(file: h5py.File) -> None:
    other = Path(file.filename).with_name("other.h5")
    file.copy("tensor", h5py.File(other, "w"), name="tensor")
    del file["tensor"]
    file["detour"] = h5py.ExternalLink(other, "/")
    file["tensor"] = h5py.SoftLink("/detour/tensor")


def stored_elsewhere(file: h5py.File) -> None:
    shape = file["tensor"].shape
    del file["tensor"]
    file.create_dataset("tensor", shape, "f4", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])


def packed_in_an_unknown_way(file: h5py.File) -> None:
    shape = file["tensor"].shape
    del file["tensor"]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(shape)
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (3,))
    space = h5py.h5s.create_simple(shape)
    h5py.h5d.create(file.id, b"tensor", h5py.h5t.NATIVE_FLOAT, space, plist)


def in_a_huge_chunk(file: h5py.File) -> None:
    del file["tensor"]
    file.create_dataset("tensor", (4, 4, 1 << 27), "f4", chunks=(1, 1, 1 << 27), compression="gzip")


def uneven(values: np.ndarray) -> np.ndarray:
    changed = values.copy()
    changed[2] += 0.4 * (values[1] - values[0])
    return changed


CASES: list[tuple[str, Damage, str]] = [
    ("burgers", replaced("tensor", lambda v: v.swapaxes(1, 2)), "are the axes in another order"),
    (
        "burgers",
        replaced("x-coordinate", lambda x: 100 * x),
        "`x-coordinate` to cover a length of 1, got 100",
    ),
    ("burgers", replaced("t-coordinate", lambda t: 1e3 * t), "frames 0.01 apart .*starts with 0, 10"),
    ("burgers", replaced("t-coordinate", lambda t: t[::-1]), "`t-coordinate` to ascend, got 0.04"),
    ("burgers", replaced("t-coordinate", uneven), "expected equal steps in `t-coordinate`"),
    ("burgers", replaced("x-coordinate", uneven), "expected equal steps in `x-coordinate`"),
    ("burgers", replaced("x-coordinate", lambda x: x * np.nan), "`x-coordinate` to ascend, got nan"),
    ("burgers", replaced("tensor", lambda v: v.astype(int)), "real numbers in `tensor`, got int64"),
    ("burgers", to_another_file, "expected `tensor` in this file, but it links to another one"),
    ("burgers", to_another_file_by_a_detour, "expected `tensor` in this file, but it links to another one"),
    ("burgers", stored_elsewhere, "expected the values of `tensor` in this file"),
    ("burgers", packed_in_an_unknown_way, "`tensor` is packed with the HDF5 filter 32015 .*h5repack"),
    ("burgers", in_a_huge_chunk, "expected chunks of at most 256 MiB in `tensor`"),
    ("burgers", without("x-coordinate"), "expected a dataset `x-coordinate`"),
    ("burgers", told("Nu", 1.0), "the attribute Nu to be 0.1, got 1.0"),
    ("darcy", without("nu"), "expected a dataset `nu`, found: tensor"),
    ("darcy", told("beta", 3.0), "the attribute beta to be 1.0, got 3.0"),
    ("reaction_diffusion", told("rho", 2.0), "the attribute rho to be 1.0, got 2.0"),
    ("diffusion_sorption", to_a_group_of_another_file, "expected `0000` in this file, but it links to"),
    ("diffusion_sorption", replaced("0001/data", lambda v: v[:, ::-1, 0]), r"of shape \(frames, po"),
    (
        "diffusion_sorption",
        replaced("0002/grid/x", lambda x: 10 * x),
        "`0002/grid/x` to cover a length of 1,",
    ),
    ("diffusion_sorption", without("0001/grid/t"), "`grid/t` in `/0001`"),
    ("diffusion_sorption", without("0003"), "expected at least 4 samples, got 3"),
    ("diffusion_sorption", lambda file: file.move("0002", "2"), "expected a group `0002`"),
    ("compressible_1d", without("pressure"), "a dataset `pressure`, found: Vx, density"),
    ("compressible_1d", replaced("x-coordinate", lambda x: x / 2), "to cover a length of 2, got"),
    ("compressible_1d", told("zeta", 0.5), "attribute zeta to be 0.01, got 0.5"),
    ("compressible_2d", replaced("Vy", lambda v: v[:, :2]), r"`Vy` of the shape .*, got \(4, 2, 16, 16\)"),
    ("compressible_3d", replaced("density", lambda v: np.moveaxis(v, 1, -1)), r"`pressure` of the shape of"),
    ("compressible_3d", without("Vz"), "expected a dataset `Vz`, found: Vx, Vy, density"),
    ("compressible_3d", replaced("z-coordinate", lambda z: 2 * z), "to cover a length of 1, got 2"),
    ("incompressible", replaced("velocity", lambda v: np.moveaxis(v, -1, 2)), "expected `velocity` of shape"),
    ("incompressible", replaced("force", lambda v: v[..., :1]), r"`force` of shape \(4, 16, 16, 2\)"),
    ("incompressible", replaced("t", lambda t: t * [[1], [1], [2], [1]]), "frames 0.01 apart .*0, 0.02"),
]


@pytest.mark.parametrize(("task", "damage", "message"), CASES)
def test_errors_of_a_file_name_the_place(task: str, damage: Damage, message: str, tmp_path: Path) -> None:
    config = replace(SMALL, task=task)
    data.generate(config, tmp_path)
    with h5py.File(tmp_path / FILES[task], "a") as file:
        damage(file)
    with pytest.raises(DataError, match=message) as error:
        data.splits(config, tmp_path)
    assert FILES[task] in str(error.value)


@pytest.mark.parametrize("keep", ["device", "host", "disk"])
def test_a_chunk_that_is_cut_off_is_told_by_name(tmp_path: Path, keep: str) -> None:
    config = replace(SMALL, task="compressible_1d", keep=keep)
    data.generate(config, tmp_path)
    path = tmp_path / FILES["compressible_1d"]
    with h5py.File(path, "a") as file:
        replaced("Vx", lambda values: values, chunks=(1, 4, 16), compression="gzip")(file)
        chunk = file["Vx"].id.get_chunk_info(1)
    with path.open("r+b") as raw:
        raw.seek(chunk.byte_offset + chunk.size // 2)
        raw.write(bytes(chunk.size - chunk.size // 2))
    splits = data.splits(config, tmp_path)
    splits.train.read([0, 2])
    with pytest.raises(
        DataError, match=r"1D_CFD.*cannot read `Vx`.*damaged or incomplete: download it again"
    ):
        splits.train.read([1])


def test_attributes_of_any_kind_do_no_harm(tmp_path: Path) -> None:
    config = replace(SMALL, task="burgers")
    data.generate(config, tmp_path)
    with h5py.File(tmp_path / FILES["burgers"], "a") as file:
        file.attrs["list"] = np.arange(1000)
        file.attrs["config"] = "a: \x1b[31m1\n" * 1000
        file.attrs["Nu"] = np.array([0.1])
    assert len(data.splits(config, tmp_path).train) == 3
