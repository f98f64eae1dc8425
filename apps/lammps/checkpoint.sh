#!/bin/sh
# Hook of Joulepoint's engine `hook`: asks LAMMPS for a restart file and takes a copy of it when it is on disk.
set -eu

touch CKPT
while [ -e CKPT ]; do sleep 0.1; done
cp melt.restart "$FT_ENERGY_CHECKPOINT_DIR/melt.restart"
