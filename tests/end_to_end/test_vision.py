"""A vision transformer from images to an evaluated model, as a user trains it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.end_to_end.refusals import error
from tests.end_to_end.runs import check_parts, write_trainer

VIT: dict[str, Any] = yaml.safe_load("""
model: {name: vision_transformer, num_classes: 3, image_size: [8, 8], patch_size: [4, 4], hidden_size: 32, num_heads: 2,
        use_conv_patchified_embedding: true, num_hidden_layers: 2, filter_size: 64}
optimizer: {AdamW: {betas: [0.9, 0.98], weight_decay: 0.01}}
schedulers: [{ConstantLR: {learning_rate: 2.0e-3}}]
loop: {max_steps: 30}
checkpoint: {steps: 10}
logging: {log_steps: 10}
""")
IN_LAB = [("sparsity", {"sparsity": 0.5}), ("precision", {"host": "bfloat16"})]
PIXELS = [{"name": "to_tensor"}, {"name": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}]
CROPS = yaml.safe_load("""
- {name: resize, size: [12, 12]}
- {name: random_resized_crop, size: [8, 8], scale: [0.5, 1.0]}
- {name: random_horizontal_flip}
""")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Files of three classes, each of a colour of its own, of several sizes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(5)
    for part, count in (("train", 16), ("val", 5)):
        for channel, name in enumerate(("blue", "green", "red")):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 160, (*rng.integers(10, 16, 2), 3))
                pixels[:, :, channel] += 80
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / name / f"{number}.png")
    return folder


def vit_file(folder: Path, photos: Path, name: str, model: dict[str, Any] | None = None, **init: Any) -> Path:
    common = {"data_processor": "ImageNet1KProcessor", "data_dir": str(photos), "batch_size": 6}
    whole = [{"name": "resize", "size": [8, 8]}, *PIXELS]
    train = {**common, "transforms": [*CROPS, *PIXELS]}
    val = {**common, "drop_last": False, "shuffle": False, "transforms": whole}
    sections = {**VIT, "model": {**VIT["model"], **(model or {})}, "model_dir": str(folder / name), **init}
    return write_trainer(folder / f"{name}.yaml", sections, {"train_dataloader": train, "val_dataloader": val})


@pytest.mark.takes("a training that learns, and two evaluations")
def test_it_learns_colours_and_says_how_often_it_is_right(cstool, tmp_path, photos):
    file = vit_file(tmp_path, photos, "straight", loop={"max_steps": 60})
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    (found,) = outcome.document["evaluations"]
    assert (found["samples"], found["accuracy"]) == (15, 1.0)
    again = cstool("run", "-p", file, "--mode", "eval", "--json").document["evaluations"][0]
    assert (again["accuracy"], again["loss"]) == (found["accuracy"], found["loss"])


@pytest.mark.takes("three runs, whose images end within them")
@pytest.mark.parametrize(
    "init", [{}, *(pytest.param({key: value}, marks=pytest.mark.lab) for key, value in IN_LAB)], ids=str
)
def test_stopped_and_gone_on_with_it_has_the_bits_of_a_straight_run_however_it_is_run(cstool, tmp_path, photos, init):
    """Its images end after eight steps, so that crops of several epochs are drawn."""
    files = (vit_file(tmp_path, photos, name, **init) for name in ("straight", "stopped"))
    kept = ("--set", "trainer.init.memoryx.store=file", "--set", "trainer.init.activation_checkpointing=always")
    check_parts(cstool, *files, 7, 12, *kept)


@pytest.mark.parametrize("mode", ["pipelined", "weight_streaming"])
def test_the_compiler_places_it_in_both_modes(cstool, tmp_path, photos, mode):
    file = vit_file(tmp_path, photos, "placed")
    outcome = cstool("compile", "-p", file, "--execution_mode", mode, "--compile_dir", tmp_path / mode)
    assert outcome.code == 0, outcome.stderr


def test_images_of_another_size_and_more_classes_than_the_model_has_are_refused(cstool, tmp_path, photos):
    file = vit_file(tmp_path, photos, "sizes", {"image_size": [12, 8]})
    outcome = cstool("run", "-p", file)
    rule = "the images must be 12 x 8 in 3 channels, as the image_size and num_channels of the model say"
    assert outcome.code == 2
    assert f"{photos}/train: {rule}, got 8 x 8 in 3 channels" in outcome.stderr
    file = vit_file(tmp_path, photos, "classes", {"num_classes": 2})
    outcome = cstool("run", "-p", file)
    rule = f"{photos}/train/red/0.png: classes must be in [0, 2), as the model has num_classes, got 2"
    assert outcome.code == 2
    assert rule in outcome.stderr


def test_it_is_not_asked_for_answers(cstool, tmp_path, photos):
    file = vit_file(tmp_path, photos, "asked")
    kinds = "a decoder, an encoder-decoder, an encoder or fc_mnist"
    rule = f"TMP/asked.yaml: the model must be {kinds}, got vision_transformer"
    hint = "--mode eval says how well it does on its validation data"
    for typed in ((), ("--prompt", "Hello")):
        outcome = cstool("run", "-p", file, "--mode", "infer", *typed)
        assert (outcome.code, outcome.stderr) == (2, error(rule, hint))
