"""The params file beside a converted checkpoint: it can be read, and its comments say what makes the data."""

from typing import Any

import pytest

from cstool.convert.described import Described
from cstool.convert.training_text import training_text
from cstool.model.params import parse_params
from tests.models import MODELS, decoder_params, encoder_params

T5: Any = MODELS["t5"].model_validate({"name": "t5", "src_vocab_size": 61, "d_model": 48, "num_heads": 6})
PREPARE = "#   cstool data prepare text TEXTS --output 'my model_data' --sequence_length"
NAMED = "# Its data are to be named: train_dataloader below `fit`, as docs/model/{}.md describes it. Then:"
LONG = decoder_params(sequence=131072, position_embedding_type="rotary", rotary_dim=4)


@pytest.mark.parametrize(
    ("model", "tokenizer", "told"),
    [
        (decoder_params(), None, f"{PREPARE} 8 --tokenizer FILE"),
        # Texts that a host cannot train with are not suggested, and a tokenizer that is none has no begin.
        (LONG, "my model.tokenizer.json", f"{PREPARE} 2048 --tokenizer 'my model.tokenizer.json'"),
        (T5, None, NAMED.format("encoder_decoders")),
        (encoder_params(), None, NAMED.format("encoders")),
    ],
)
def test_it_trains_the_model_from_the_checkpoint(tmp_path, model, tokenizer, told):
    document = {"trainer": {"init": {"model": model.dump()}}}
    beside = None if tokenizer is None else tmp_path / tokenizer
    text = training_text(Described(model, "here", document), tmp_path / "my model.mdl", beside)
    lines = text.splitlines()
    assert lines[0] == "# The model of my model.mdl, and what training it further takes."
    assert told in lines
    assert "#   cstool run --params 'my model.yaml'" in lines
    params = parse_params(text, str(tmp_path / "my model.yaml"))
    assert params.model == model
    assert (params.checkpoint_path.path, params.loop.max_steps) == (tmp_path / "my model.mdl", 1000)
    data = "my model_data"
    assert params.data_folders == (() if "Its data" in told else (tmp_path / data / "train", tmp_path / data / "val"))
