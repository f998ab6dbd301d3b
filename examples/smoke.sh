#!/usr/bin/env bash
# Every part of cstool once, in under a minute: train, be killed, go on with the same bits, answer, compile, estimate,
# and a program in CSL. Run from the project's folder (`make smoke` does). It prints a line for each, with its seconds;
# exit code 1 and the log of what failed otherwise.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CSTOOL_CACHE_DIR=${CSTOOL_CACHE_DIR-$scratch/cache} # from nothing, so kernels are compiled too
log=$scratch/log
began=$(date +%s.%N) last=$began

said() { # a line, with the seconds since the one before
    local now
    now=$(date +%s.%N)
    awk -v text="$1" -v seconds="$(echo "$now $last" | awk '{ print $1 - $2 }')" \
        'BEGIN { printf "%6.1f s  %s\n", seconds, text }'
    last=$now
}
failed() {
    echo "FAILED: $1" >&2
    tail -n 40 "$log" >&2
    exit 1
}
quiet() { # run a command, its output into the log
    "$@" >>"$log" 2>&1 || failed "$*"
}
small=(
    --params params/gpt_tiny.yaml --logging WARNING
    --set trainer.init.checkpoint.steps=10 trainer.fit.train_dataloader.batch_size=8
    "trainer.fit.train_dataloader.data_dir=$scratch/text/train" "trainer.fit.val_dataloader.data_dir=$scratch/text/val"
)

quiet cstool data prepare text cstool --output "$scratch/text" --sequence_length 128
said "data: the text of this project, in samples of 128 bytes"

quiet cstool run "${small[@]}" --model_dir "$scratch/straight" --max_steps 20 --num_csx 1
said "run: a GPT of 842,496 parameters trained 20 steps on 1 CSX, kernels compiled for this CPU first"

cstool run "${small[@]}" --model_dir "$scratch/killed" --max_steps 20 --num_csx 2 >>"$log" 2>&1 &
run=$!
until [ -e "$scratch/killed/checkpoint_10.mdl" ]; do
    kill -0 $run 2>/dev/null || failed "a run on 2 CSX"
    sleep 0.02
done
kill -9 $run
code=0
{ wait $run || code=$?; } 2>>"$log" # of which the shell would say that it was killed
[ $code = 137 ] && [ ! -e "$scratch/killed/checkpoint_20.mdl" ] || failed "a run that is killed between steps 10 and 20"
said "kill: the same on 2 CSX, killed with SIGKILL after its checkpoint of step 10"

quiet cstool run "${small[@]}" --model_dir "$scratch/killed" --max_steps 20 --num_csx 4
quiet cstool checkpoint diff "$scratch/straight:20" "$scratch/killed:20" --tensors_only
said "resume: from step 10 on 4 CSX; weights and optimizer state are those of the straight run, bit for bit"

answer=$(cstool run "${small[@]}" --model_dir "$scratch/straight" --mode infer --prompt 'def ' --max_tokens 24 \
    --temperature 0 2>>"$log") || failed "an answer"
[ -n "$answer" ] || failed "an answer of some length"
said "infer: 24 bytes after 'def ' from the checkpoint of step 20"

quiet cstool compile --params params/gpt2_small.yaml --out "$scratch/gpt2_small.json"
said "compile: GPT-2 small placed on the wafer of a CS-2"

quiet cstool estimate --params params/gpt2_small.yaml --num_csx 1,4
said "estimate: a step of GPT-2 small on 1 and on 4 CS-2, modelled"

cp -r examples/csl "$scratch/csl" # its artifact is not for this folder
quiet cstool fabric run "$scratch/csl/row_reduce"
said "fabric: a program in CSL compiled and run on 12 simulated PEs"

last=$began
said "in all; every part works"
