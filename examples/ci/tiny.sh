# Sourced by the other scripts: a scratch folder, a text data set made from this project's own sources, and the flags of
# a model that trains in seconds.
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cstool data prepare text "$project/cstool" --output "$scratch/text" --sequence_length 64 --val_fraction 0.2 --json \
    >"$scratch/text.json"

tiny=(
    --params "$project/params/gpt_tiny.yaml"
    --set
    trainer.init.model.max_position_embeddings=64
    trainer.init.model.hidden_size=32
    trainer.init.model.filter_size=64
    trainer.init.model.num_hidden_layers=2
    trainer.init.loop.eval_steps=2
    trainer.init.checkpoint.steps=5
    trainer.fit.train_dataloader.batch_size=32
    trainer.fit.val_dataloader.batch_size=32
    "trainer.fit.train_dataloader.data_dir=$scratch/text/train"
    "trainer.fit.val_dataloader.data_dir=$scratch/text/val"
)

# field FILE EXPRESSION: print what a Python expression says about the JSON document `d` in a file
field() {
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

# check WHAT GOT WANTED: stop with exit code 1 unless the two are the same
check() {
    if [ "$2" != "$3" ]; then
        echo "FAILED: $1: got $2, wanted $3" >&2
        exit 1
    fi
    echo "ok: $1"
}
