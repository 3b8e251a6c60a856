#!/bin/bash
#SBATCH --job-name=mock-cubes
#SBATCH --array=1-16
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus=1
#SBATCH --mem=32G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=log-%A_%a.txt

# Each of the 16 tasks takes its share of the galaxies. A task that is cut off by its time limit, or requeued, goes on
# where it was when it is started again: the same sbatch command does only what is left.
rubix-like run run.yaml --catalogue list.csv --views views.csv --output cubes --part "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
