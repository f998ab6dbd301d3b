"""`cstool estimate` and what is below it: what cannot be estimated is one error, and nothing is written."""

import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from cstool.training.host import rates as host_rates
from tests.end_to_end.refusals import rows
from tests.hosts import round_rates
from tests.unit.cli.conftest import GPT

WORDS = {
    "ADAFACTOR": "'trainer.init.optimizer={Adafactor: {learning_rate: 0.1}}'",
    "NUM_CSX": "trainer.init.backend.cluster_config.num_csx",
    "DOUBLES": "such as 4, or 1,2,4..192, where .. doubles",
    "SIZES": "such as 1536, or 512..4096, where .. doubles",
    "STREAMED": "-p gpt.yaml --execution_mode weight_streaming",
    "INFER": "-p llama3_8b --system cs3 --mode infer --prompt_tokens 2048 --new_tokens 512",
    "OPTIMIZE": "optimize -p small.yaml --tokens 100B --execution_mode weight_streaming",
    "NO_LOADER": "no_loader.yaml: trainer.fit.train_dataloader is missing: its batch_size is what a step is\n"
    "hint: --set trainer.fit.train_dataloader.batch_size=N gives one, with its data_processor and data_dir",
}
REFUSED = rows("""\
-p gpt.yaml --num_csx none => --num_csx: must be numbers of systems, got none\nhint: DOUBLES
-p gpt.yaml --memoryx 20GB =>
    gpt.yaml: MemoryX of cs2 must hold 21.1 GB: weights, optimizer state and gradients; got 20 GB
    hint: the smallest unit that holds it is 1.5 TB, of cs2: --system cs2 --memoryx 1.5TB
-p two.yaml => --params: must be of one trainer, got 2 in two.yaml\nhint: estimate them apart
-p gpt.yaml --tokens 0 => --tokens: must be more than zero, such as 300B, got 0
-p gpt.yaml --sparsity -0.5 => --sparsity: must be shares of zeros from 0 to below 1, got -0.5\nhint: such as 0,0.5,0.9
-p gpt.yaml --set ADAFACTOR --sparsity 0.5 => --sparsity: must not be given with Adafactor, got 0.5
    hint: of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them
-p none.yaml => none.yaml:3: trainer.fit.train_dataloader.batch_size is missing
-p no_loader.yaml => NO_LOADER
-p no_loader.yaml --system host => NO_LOADER
-p small.yaml --trace step.txt => --trace: must end in .json, got step.txt
-p small.yaml --trace none/step.json =>
    --trace: must be in a folder that can be written, got none/step.json: No such file or directory
    hint: create the folder first
-p small.yaml --plot step.gif => --plot: must end in .svg or .png, got step.gif
-p fc.yaml --plot none/a.png => none/a.png: cannot be written: No such file or directory
-p small.yaml --csv none/rows.csv => none/rows.csv: cannot be written: No such file or directory
-p small.yaml --csv small.yaml => --csv: must end in .csv, got small.yaml
-p small.yaml --csv folder.csv => --csv: must be a file, got a folder: folder.csv
-p small.yaml --plot a.svg --plot ./a.svg => --plot: must be another file than --plot, got a.svg
-p gpt.yaml --num_csx 1..1000 => --num_csx: must be at most 192, the systems of a cluster of cs2, got 1,000
    hint: --system cs3 has clusters of that size
-p gpt.yaml --num_csx 2 --system lone.yaml => --num_csx: must be 1: lone has no SwarmX, got 2
-p gpt.yaml --memoryx abc => --memoryx: must be a number, such as 12TB, got abc
--validate --plot x.svg => --plot: must be left out beside --validate, where it has no effect
--validate -p gpt.yaml => --params: must be left out beside --validate, where it has no effect
-p gpt.yaml --system host --num_csx 4 => --num_csx: must be left out beside --system host, where it has no effect
--system host --tokens 1B => --tokens: must be left out beside --system host, where it has no effect
-p gpt.yaml --num_csx 8..4 => --num_csx: must go up in 8..4, got 8..4\nhint: DOUBLES
-p gpt.yaml --calibrate => --calibrate: must stand beside --system host, got --system cs2
-p fc.yaml --ranks 2 => --ranks: must stand beside --system host, got --system cs2
-p fc.yaml --link 1Gb/s --system cs3 => --link: must stand beside --system host, got --system cs3
--system host --ranks 2 => --ranks: must be left out beside --system host, where it has no effect
-p fc.yaml --system host --link 1Gb/s => --link: must stand beside --ranks of 2 or more, got --ranks 1
-p fc.yaml --system host --ranks 2 => --ranks: must be at most 1, the num_csx of fc.yaml, got 2
    hint: --set trainer.init.backend.cluster_config.num_csx=N, where N divides the batch_size, 120
-p fc.yaml --system host --ranks 7 --set NUM_CSX=7 =>
    num_csx: must divide the batch_size (120) of fc.yaml: trainer.fit.train_dataloader, got 7
    hint: 6 and 8 are the nearest; all that do: 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 120
-p fc.yaml --system host --ranks 5 --set NUM_CSX=6 =>
    --ranks: must be at most 4, the grains of a batch of 120 samples, got 5
    hint: a larger batch_size has more of them
STREAMED --price 3 => --price: must stand beside --tokens, which say how long the job is, got 3.0
-p gpt3_xl --gpu a100 => --gpu: must stand beside --gpus, the number of them, got a100 alone
-p gpt3_xl --gpus x => --gpus: must be numbers of GPUs, got x\nhint: DOUBLES
-p gpt3_xl --gpus 8..4 => --gpus: must go up in 8..4, got 8..4\nhint: DOUBLES
-p gpt.yaml --system host --software 2.0 => --software: must be left out beside --system host, where it has no effect
INFER --batch 1,x => --batch: must be numbers of users, from 1 to 1,000,000, got 1,x\nhint: such as 1,8,64
INFER --num_csx 1,2 => --num_csx: must be one number of systems beside --mode infer, got 1,2
INFER --tokens 3B => --tokens: must be left out beside --mode infer, where it has no effect
INFER --price 3 => --price: must be left out beside --mode infer, where it has no effect
-p llama3_8b --prompt_tokens 9 => --prompt_tokens: must stand beside --mode infer
-p gpt3_xl --batch_per_csx 2147483648 => --batch_per_csx: Input should be less than or equal to 2147483647
    hint: `cstool estimate --help` lists what there is
-p llama3_8b --batch 9 => --batch: must stand beside --mode infer
optimize --days 3 => --params is missing\nhint: cstool estimate optimize --params FILE --tokens 300B --days 30
optimize -p small.yaml --days 3 => --tokens is missing: a job is so many tokens\nhint: such as --tokens 300B
OPTIMIZE => --days, --power or --budget is missing: without a limit there is nothing to search\nhint: such as --days 30
OPTIMIZE --days 0 => --days: must be days, more than 0, got 0
OPTIMIZE --days nan => --days: must be days, more than 0, got nan
OPTIMIZE --power lots => --power: must be a power in W, kW or MW, such as 500kW, got lots
OPTIMIZE --power 0kW => --power: must be a power in W, kW or MW, such as 500kW, more than 0, got 0kW
OPTIMIZE --budget 2M => --budget: must stand beside --price, of a system for an hour, got 2M
OPTIMIZE --budget much --price 1 => --budget: must be an amount, such as 2M, got much
OPTIMIZE --budget 2M --price 0 => --price: must be more than 0 beside --budget, got 0
OPTIMIZE --budget 2M --price -4 => --price: must be a price of a system for an hour, at least 0, got -4
OPTIMIZE --power 1MW --confident => --confident: must stand beside --days or --budget: the range is one of time
OPTIMIZE --days 3 --batch_size 8..4 => --batch_size: must go up in 8..4, got 8..4\nhint: SIZES
OPTIMIZE --days 3 --batch_size many => --batch_size: must be numbers of samples, got many\nhint: SIZES
OPTIMIZE --days 3 --batch_size 2147483648 => --batch_size: must be at most 2,147,483,647 samples, got 2,147,483,648
OPTIMIZE --days 3 --batch_per_csx 8..3000000000 =>
    --batch_per_csx: must be at most 2,147,483,647 samples, got 3,000,000,000
OPTIMIZE --days 3 --batch_size 8 --batch_per_csx 4 => --batch_per_csx: must be left out beside --batch_size, got 4
OPTIMIZE --power 100MW --frozen first:99 => --frozen: must be of at most the 2 layers of gpt3, got first:99
OPTIMIZE --days 3 --plot a.pdf => --plot: must end in .svg or .png, got a.pdf
OPTIMIZE --days 3 --csv a.txt => --csv: must end in .csv, got a.txt
OPTIMIZE --days 3 --sparsity 1.5 => --sparsity: must be shares of zeros from 0 to below 1, got 1.5
    hint: such as 0,0.5,0.9
""")


@pytest.fixture
def _folder_of_files(estimated, folder, monkeypatch):
    """Files of several kinds, and rates of this host outside of the folder."""
    rates = folder.parent / "host.yaml"
    rates.write_text(yaml.safe_dump(asdict(round_rates())))
    monkeypatch.setattr(host_rates, "rates_file", lambda: rates)
    (folder / "folder.csv").mkdir()
    (folder / "lone.yaml").write_text("extends: cs2\nswarmx: null\n")
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "."}
    for name, trainer in (
        ("no_loader", {"init": GPT["init"]}),
        ("none", {"fit": {"train_dataloader": loader}, "init": GPT["init"]}),
        ("two", [{"trainer": GPT}, {"trainer": GPT}]),
    ):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"trainer": trainer}))


@pytest.mark.usefixtures("_folder_of_files")
@pytest.mark.parametrize(
    ("typed", "message"),
    [("", "--params is missing\nhint: cstool estimate --params FILE, or cstool estimate --validate"), *REFUSED],
)
def test_what_cannot_be_estimated(cstool, typed, message):
    for word, text in WORDS.items():
        typed, message = typed.replace(word, text), message.replace(word, text)
    before = sorted(Path().iterdir())
    assert cstool("estimate", *shlex.split(typed)) == (2, "", f"error: {message}\n")
    assert sorted(Path().iterdir()) == before
