#!/usr/bin/env bash
# Train a few steps, evaluate, look at the checkpoint: everything by exit code and --json.
set -euo pipefail
source "$(dirname "$0")/tiny.sh"

cstool run "${tiny[@]}" --mode train_and_eval --num_csx 2 --max_steps 10 --model_dir "$scratch/model" --json \
    >"$scratch/run.json"
check "ten steps were trained" "$(field "$scratch/run.json" "len(d['losses'])")" 10
check "the loss fell" "$(field "$scratch/run.json" "d['losses'][-1] < d['losses'][0]")" True
check "the held-out loss is a number" "$(field "$scratch/run.json" "d['evaluations'][-1]['loss'] > 0")" True

cstool checkpoint list "$scratch/model" --json >"$scratch/list.json"
check "the last step is saved" "$(field "$scratch/list.json" "d['checkpoints'][-1]['step']")" 10
cstool checkpoint info "$scratch/model/checkpoint_10.mdl" --json >"$scratch/info.json"
check "the checkpoint says its step" "$(field "$scratch/info.json" "d['step']")" 10

# What the user can fix exits with 2 and leaves stdout empty.
status=0
cstool run "${tiny[@]}" trainer.init.model.hidden_size=33 --json >"$scratch/bad.json" || status=$?
check "a bad value exits with 2" "$status" 2
check "an error prints no document" "$(wc -c <"$scratch/bad.json")" 0
