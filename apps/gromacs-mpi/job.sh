#!/bin/bash
#SBATCH --job-name=gromacs-mpi
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=2
# GROMACS with MPI on three nodes, in the folder that prepare.sh made: the same script with and without Joulepoint.
# -reprod -dlb no: the same bits, however often it is run. Its own checkpoints (every 15 minutes) are not used.

srun --mpi=pmix gmx_mpi -quiet mdrun -s topol.tpr -deffnm water -ntomp 1 -npme 0 -dlb no -pin off -reprod
