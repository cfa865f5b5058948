"""The names of PDEBench's files that tests write."""

FILES = {
    "advection": "1D_Advection_Sols_beta1.0.hdf5",
    "burgers": "1D_Burgers_Sols_Nu0.1.hdf5",
    "compressible_1d": "1D_CFD_Rand_Eta0.01_Zeta0.01_periodic_Train.hdf5",
    "compressible_2d": "2D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_128_Train.hdf5",
    "compressible_3d": "3D_CFD_Rand_M0.1_Eta0.01_Zeta0.01_periodic_Train.hdf5",
    "darcy": "2D_DarcyFlow_beta1.0_Train.hdf5",
    "diffusion_reaction": "2D_diff-react_NA_NA.h5",
    "diffusion_sorption": "1D_diff-sorp_NA_NA.h5",
    "incompressible": "ns_incom_inhom_2d_512-0.h5",
    "reaction_diffusion": "ReacDiff_Nu0.1_Rho1.0.hdf5",
    "shallow_water": "2D_rdb_NA_NA.h5",
}
