#!/bin/bash
#SBATCH --job-name=heat
#SBATCH --output=heat-%j.out
#SBATCH --open-mode=append
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
# The heat equation on four nodes, in the folder that prepare.sh made: the same script with and without Joulepoint.
# Checkpoints on SIGUSR1, or every FT_ENERGY_INTERVAL_S seconds if that is set; resumes from heat.ckpt by itself.
# More options of heat may follow the script's name on sbatch's command line; the last one counts.

exec srun --mpi=pmix ./heat --size 512 --steps 3000 --step-ms 20 --interval env "$@"
