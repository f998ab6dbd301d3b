#!/usr/bin/env bash
# Train on two ranks and in one process: the same losses and the same weights, to the last bit. On a cluster with Slurm
#     LAUNCH="--launch slurm --nodes 2" TMPDIR=a_folder_that_all_nodes_have ./two_ranks.sh
# has the ranks on two nodes.
set -euo pipefail
source "$(dirname "$0")/tiny.sh"
read -r -a launch <<<"${LAUNCH:---launch mpi --ranks 2}"

cstool run "${tiny[@]}" --max_steps 5 --model_dir "$scratch/one" --json >"$scratch/one.json"
cstool run "${tiny[@]}" --max_steps 5 --model_dir "$scratch/two" --num_csx 2 "${launch[@]}" --json >"$scratch/two.json"
check "there were two ranks" "$(field "$scratch/two.json" "len(d['ranks'])")" 2
check "the losses are the same" "$(field "$scratch/two.json" "d['losses']")" "$(field "$scratch/one.json" "d['losses']")"

cstool checkpoint diff "$scratch/one:5" "$scratch/two:5" --tensors_only >/dev/null
echo "ok: no weight differs"

# A rank without a system exits with 2, before anything is trained.
status=0
cstool run "${tiny[@]}" --num_csx 1 --max_steps 5 --model_dir "$scratch/none" "${launch[@]}" 2>"$scratch/message" ||
    status=$?
check "a rank without a system exits with 2" "$status" 2
check "it says what would do" "$(grep -c '^hint: --num_csx 2' "$scratch/message")" 1
