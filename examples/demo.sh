#!/usr/bin/env bash
# Train a small GPT on the sources of Python's standard library, on two systems, hold it against a bigram model,
# and let it write. Run from the project's folder (`make demo` does). Exit code 1 if the GPT is not better by 0.4 nats
# per byte.
set -euo pipefail

result=$(mktemp)
trap 'rm -f "$result"' EXIT

cstool data prepare text --output datasets/text --sequence_length 128
cstool run --params params/gpt_tiny.yaml --num_csx 2 --mode train_and_eval --json >"$result"
bigram=$(cstool data baseline datasets/text --json)

python3 - "$result" "$bigram" <<'END'
import json, sys

run, bigram = json.load(open(sys.argv[1])), json.loads(sys.argv[2])
loss, baseline = run["evaluations"][-1]["loss"], bigram["loss"]
print()
print(f"  held-out loss of the GPT after step {run['last_step']}:  {loss:.3f} nats per byte")
print(f"  held-out loss of a bigram model:       {baseline:.3f} nats per byte")
print(f"  better by                              {baseline - loss:.3f}")
if run["checkpoints"]:
    print(f"  checkpoint: {run['checkpoints'][-1]}")
sys.exit(0 if baseline - loss >= 0.4 else 1)
END

echo
echo "  a sample, after the prompt 'def ':"
echo
cstool run --params params/gpt_tiny.yaml --mode infer --prompt 'def ' --temperature 0.5 --max_tokens 120 --logging WARNING
