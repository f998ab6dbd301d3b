#!/usr/bin/env bash
# Plan a job before it is queued: how the wafer is used, what a step would take there (modelled), and that a change of
# the params makes nothing worse. What was planned is then what runs.
set -euo pipefail
source "$(dirname "$0")/tiny.sh"

cstool compile --params "$project/params/gpt3_13b.yaml" --num_csx 16 --recompute needed --out "$scratch/plan.json" \
    --json >"$scratch/plan"
check "13B has its weights streamed" "$(field "$scratch/plan" "d['mode']")" weight_streaming
check "MemoryX holds it" "$(field "$scratch/plan" \
    "d['memoryx']['total_bytes'] <= d['memoryx']['capacity_bytes']")" True
check "the fullest PE's account adds up" "$(field "$scratch/plan" \
    "sum(e['bytes'] for e in d['sram']['account']) == d['sram']['used_bytes'] <= d['sram']['bytes']")" True

# Computing layers again makes room for larger micro-batches: done by default, where it pays. Does it?
cstool compile --params "$project/params/gpt3_13b.yaml" --num_csx 16 --out "$scratch/again.json" --json >"$scratch/again"
check "it is more than five times as fast" "$(python3 -c 'import json, sys
before, after = (json.load(open(name))["modelled"]["step_s"] for name in sys.argv[1:])
print(before > 5 * after)' "$scratch/plan" "$scratch/again")" True

# Artifacts can be compared: 0 is the same, 1 is different.
cstool compile show "$scratch/plan.json" --plot "$scratch/plan.svg" >/dev/null
cstool compile diff "$scratch/plan.json" "$scratch/plan.json"
status=0
cstool compile diff "$scratch/plan.json" "$scratch/again.json" >"$scratch/difference" || status=$?
check "they differ" "$status" 1
check "in the micro-batch" "$(grep -c '^micro-batch: ' "$scratch/difference")" 1

# A model that does not fit is an error with a way out.
status=0
cstool compile --params "$project/params/gpt3_13b.yaml" --system cs1 2>"$scratch/message" || status=$?
check "a model that does not fit exits with 2" "$status" 2
check "and says what would" "$(grep -c '^hint: .*--system cs3' "$scratch/message")" 1

# A run executes what was compiled, and compiles nothing itself.
cstool compile "${tiny[@]}" "trainer.init.model_dir=$scratch/model_dir" --num_csx 2 --out "$scratch/tiny.json" >/dev/null
cstool run "${tiny[@]}" "trainer.init.model_dir=$scratch/model_dir" --num_csx 2 --artifact "$scratch/tiny.json" \
    --num_steps 5 --json >"$scratch/run" 2>"$scratch/log"
check "it ran what was planned" "$(field "$scratch/run" "d['modelled']['step_s']")" \
    "$(python3 -c 'import json, sys
plan = json.load(open(sys.argv[1]))
print(plan["step_cycles"] / plan["system"]["clock_hz"])' "$scratch/tiny.json")"
check "and compiled nothing" "$(find "$scratch/model_dir" -name 'cs_*.json' | wc -l | tr -d ' ')" 0
