#!/bin/bash
#SBATCH --job-name=lammps-mpi
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
# LAMMPS on three nodes, in the folder that prepare.sh made: the same script with and without Joulepoint. It writes no
# checkpoints.

srun --mpi=pmix lmp -in melt.in
