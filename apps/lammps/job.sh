#!/bin/bash
#SBATCH --job-name=lammps
#SBATCH --output=lammps-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
# LAMMPS on four nodes, in the folder that prepare.sh made: the same script with and without Joulepoint.
# `touch CKPT` makes it write melt.restart within 50 steps and go on; CKPT vanishes when the file is on disk.
# It resumes from melt.restart if there is one.

exec srun --mpi=pmix lmp -screen none -in melt.in
