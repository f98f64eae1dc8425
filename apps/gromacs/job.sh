#!/bin/bash
#SBATCH --job-name=gromacs
#SBATCH --output=gromacs-%j.out
#SBATCH --open-mode=append
# GROMACS on one core, in the folder that prepare.sh made: the same script with and without Joulepoint.
# mdrun checkpoints by itself every FT_ENERGY_INTERVAL_MIN minutes (its own default without Joulepoint) and goes on
# from water.cpt if there is one. -reprod: the same bits, however often it was interrupted.

exec srun --ntasks=1 --nodes=1 gmx -quiet mdrun -s topol.tpr -deffnm water -cpi water.cpt \
    -cpt "${FT_ENERGY_INTERVAL_MIN:-15}" -nt 1 -pin off -reprod
