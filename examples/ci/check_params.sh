#!/usr/bin/env bash
# Guard the params files of a repository: each must be right and as large as it is meant to be, before a run is queued.
set -euo pipefail
source "$(dirname "$0")/tiny.sh"

for file in "$project"/params/*.yaml; do
    cstool config validate "$file" >/dev/null
    echo "ok: $(basename "$file") is right"
done

cstool config stats "$project/params/llama3_8b.yaml" --json >"$scratch/stats.json"
check "it is Llama 3.1 8B" "$(field "$scratch/stats.json" "d['trainers'][0]['parameters']['all']")" 8030261248
check "a step is 863 PFLOP and some" "$(field "$scratch/stats.json" "d['trainers'][0]['flops_per_step'] // 10**15")" 863

# What was asked for, defaults filled in, is a params file itself: it can be kept beside a run, and means the same.
cstool config show "$project/params/llama_tiny.yaml" --set trainer.init.seed=7 >"$scratch/shown.yaml"
cstool config show "$scratch/shown.yaml" | cmp - "$scratch/shown.yaml"
echo "ok: what is shown means what was shown"

# A mistake exits with 2 and names the line, before any data is looked for.
sed 's/num_kv_groups: 2/num_kv_groups: 3/' "$project/params/llama_tiny.yaml" >"$scratch/bad.yaml"
status=0
cstool config validate "$scratch/bad.yaml" 2>"$scratch/message" || status=$?
check "a mistake exits with 2" "$status" 2
check "it names the key" "$(grep -c 'extra_attention_params' "$scratch/message")" 1
