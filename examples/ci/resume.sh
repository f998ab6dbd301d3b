#!/usr/bin/env bash
# Train straight through and in two parts, on different numbers of systems: the losses are the same, to the last bit.
set -euo pipefail
source "$(dirname "$0")/tiny.sh"

train() { # train NAME FLAGS...: leave the result of a run in NAME.json
    local name=$1
    shift
    cstool run "${tiny[@]}" "$@" --json >"$scratch/$name.json"
}
train straight --model_dir "$scratch/straight" --max_steps 10 --num_csx 1
train first --model_dir "$scratch/parts" --max_steps 5 --num_csx 1
train second --model_dir "$scratch/parts" --max_steps 10 --num_csx 2

check "the second part begins where the first ended" "$(field "$scratch/second.json" "d['first_step']")" 5
check "both parts together are the straight run" \
    "$(field "$scratch/first.json" "d['losses']") $(field "$scratch/second.json" "d['losses']")" \
    "$(field "$scratch/straight.json" "d['losses'][:5]") $(field "$scratch/straight.json" "d['losses'][5:]")"
