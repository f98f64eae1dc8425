#!/bin/sh
# Builds cuda.c, in the place of NVIDIA's libraries, and a program that counts with it: build.sh FOLDER
#
# FOLDER/on-gpu COUNTS FAST counts on the GPU of the file FOLDER/gpus, without pauses once the file FAST is there; FOLDER/fault says
# what fails.
set -eu
folder=$(cd "$1" && pwd)
source=$(dirname "$0")/cuda.c
mkdir -p "$folder/dev"
: >"$folder/dev/nvidia0"
cc -Wall -O1 -shared -fPIC "-DGPUS=\"$folder/gpus\"" "-DFAULT=\"$folder/fault\"" \
    "-DDEVICE=\"$folder/dev/nvidia0\"" -o "$folder/libcuda.so.1" "$source" -lpthread
ln -f "$folder/libcuda.so.1" "$folder/libnvidia-ml.so.1"
cc -Wall -O1 -DPROGRAM -o "$folder/on-gpu" "$source" "$folder/libcuda.so.1" '-Wl,-rpath,$ORIGIN'
echo "1 NVIDIA Model A" >"$folder/gpus"
