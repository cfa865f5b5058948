"""The names of PDEBench's files that tests write."""

from __future__ import annotations

FILES = {
    "advection": "1D_Advection_Sols_beta1.0.hdf5",
    "burgers": "1D_Burgers_Sols_Nu0.1.hdf5",
    "darcy": "2D_DarcyFlow_beta1.0_Train.hdf5",
    "diffusion_reaction": "2D_diff-react_NA_NA.h5",
    "shallow_water": "2D_rdb_NA_NA.h5",
}
