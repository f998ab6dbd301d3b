#!/bin/bash
# Written by cstool VERSION for:
#     cstool run --params gpt_tiny --set a=1 --launch slurm --nodes 2
# It may be changed, and submitted by hand: sbatch /home/me/checkpoints/gpt_tiny/slurm/job.sh

#SBATCH --job-name=gpt_tiny
# 4 ranks on 2 nodes; nodes are theirs alone, with all cores and memory.
#SBATCH --nodes=2 --ntasks=4 --ntasks-per-node=2 --exclusive --mem=0
#SBATCH --partition=main
#SBATCH --time=2:00:00
#SBATCH --account=mine --mem 8G
# Every node must have this folder and model_dir at the same path.
#SBATCH --chdir=/home/me
#SBATCH --output=/home/me/checkpoints/gpt_tiny/slurm/%j.out --error=/home/me/checkpoints/gpt_tiny/slurm/%j.err --open-mode=append
# Where a node fails Slurm queues the job again, and the run goes on.
#SBATCH --requeue
# So many seconds before the time limit, and up to 60 more, Slurm signals this shell: a step, and a
# checkpoint, must take less.
#SBATCH --signal=B:USR1@300

max_restarts=3  # how often the job is queued again by itself
# What the run says to type next has these flags.
export CSTOOL_LAUNCH_FLAGS='--launch slurm --nodes 2'

# MPI names the memory that ranks on one node share by job and step, and what ranks that were killed left there
# would be in its way. So this step gets another number each time.
restarts=${SLURM_RESTART_COUNT:-0}
for ((step = 0; step < restarts; step++)); do srun --quiet --mpi=none --nodes=1 --ntasks=1 true; done

# The ranks are signalled once they are there: they finish their step, save, and end with 130.
stop() {
    again=yes stopped=$1
    until scontrol show step "$SLURM_JOB_ID.$restarts"; do
        kill -0 $! || return
        sleep 0.5
    done >/dev/null 2>&1
    scancel --quiet --signal="$2" "$SLURM_JOB_ID"
}
trap 'echo "job $SLURM_JOB_ID: its time limit is near" >&2; stop "its time limit" TERM' USR1
trap 'stop "a signal" TERM' TERM
trap 'stop "a signal" INT' INT

# srun starts the ranks, not mpirun: Slurm then knows, signals and ends each of them on each node.
# By pmi2 it tells them of each other; `srun --mpi=list` says what there is.
# Where a rank dies the others say so, and end: they are not killed at once, nor left for ever.
srun --quiet --mpi=pmi2 --cpu-bind=none --kill-on-bad-exit=0 --wait=60 \
    /venv/bin/python -m cstool run \
    --params gpt_tiny \
    --set a=1 \
    --num_csx 4 &
# A signal ends `wait`, but not srun.
while again=; wait $!; code=$?; [ "$again" ]; do :; done
trap "" USR1 TERM INT

cut=
case $code in
    0 | 1 | 2) ;; # done; the answer is no; something to mend
    *)
        if [ "$stopped" = "its time limit" ]; then cut=$stopped; fi
        if [ "$stopped" ]; then code=130; fi
        # Only a rank that died, or was ended after the others, ends in another way.
        if [ $code != 130 ]; then cut="a rank died" code=1; fi
        ;;
esac
if [ "$cut" ] && [ "$restarts" -lt $max_restarts ]; then
    way_on="the run goes on from its last commit or checkpoint"
    echo "restart $((restarts + 1)) of $max_restarts after $cut: $way_on" >&2
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
