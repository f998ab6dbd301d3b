"""The model and dataloader sections of vision transformers."""

from typing import Any

from tests.unit.model.params.conftest import attributes, each_meaning, each_message, told

M, T = "trainer.init.model", "trainer.fit.train_dataloader"
VIT = {"name": "vision_transformer", "num_classes": 3, "image_size": [8, 8], "patch_size": [4, 4], "hidden_size": 32}
LOADER = {"data_processor": "CIFAR10Processor", "data_dir": "data", "batch_size": 8}
STEPS = [{"name": "to_tensor"}]


def vit(model: dict[str, Any] | None = None, **loader: Any) -> dict[str, Any]:
    found = {"transforms": STEPS, **LOADER, **loader}
    return {"init.model": {**VIT, "num_heads": 4, **(model or {})}, "fit.train_dataloader": found}


@each_meaning("""\
{} => {grid: [2, 2], patches: 4, patch_values: 48, kv_heads: 4, norm_first: true, prepend_cls_token: true,
    position_embedding_type: learned, dropout_rate: 0.1, attention_dropout_rate: 0.1, embedding_dropout_rate: 0.0,
    inner_dropout_rate: 0.0, pooler_nonlinearity: gelu, use_encoder_pooler_layer: false,
    cls_token_initializer: {name: truncated_normal, mean: 0.0, std: 0.02, a: -0.04, b: 0.04}}
{default_initializer: zeros, ffn_initializer: {name: ones}} => {attention_initializer.name: zeros,
    pooler_initializer.name: zeros, ffn_initializer.name: ones, projection_initializer.name: truncated_normal}
position_embedding_type: null => position_embedding_type: null
""")
def test_what_is_left_out_has_the_vendors_defaults(load, written, expected):
    model = load(vit(written)).model
    assert attributes(model, expected) == expected
    assert model.dump()["position_embedding_type"] == model.position_embedding_type


@each_message("""\
patch_size: [3, 4] => @.patch_size must divide the image_size (8 x 8), got [3, 4]
position_embedding_type: rotary => not supported: @.position_embedding_type: rotary
    hint: supported: learned, fixed, null
stochastic_depth_drop_prob: 0.1 => not supported: @.stochastic_depth_drop_prob: 0.1\nhint: supported: 0.0
freeze: [vit] => not supported: @.freeze\nhint: leave it out
""")
def test_a_model_that_makes_no_sense_is_an_error(fault, written, message):
    assert fault(vit(written)) == told(message, M)


NAMES = (
    "resize, center_crop, random_crop, random_resized_crop, random_horizontal_flip, random_vertical_flip, to_tensor, "
    "normalize"
)


@each_message("""\
[] => @ must have to_tensor once in its transforms, after all that changes pixels and before normalize\nhint: at their \
end, for example: {name: to_tensor}, {name: normalize, mean: [0.5], std: [0.5]}
[{name: randaug}] => @.transforms.0.name must be one of NAMES, got 'randaug'\nhint: it cannot be had; leave it out
[{name: resise}] => @.transforms.0.name must be one of NAMES, got 'resise'\nhint: did you mean resize?
[{size: 3}] => @.transforms.0.name is missing\nhint: the names are NAMES
[5] => @.transforms.0 must be a mapping, got 5
[{name: random_crop, size: 3, fill: 7}] => not supported: @.transforms.0.fill: 7\nhint: supported: 0
""")
def test_a_transform_that_cannot_be_had_is_an_error(fault, written, message):
    assert fault(vit(transforms=written)) == told(message, T, NAMES=NAMES)


def test_digits_are_normalised_by_their_reader(fault):
    rule = "must not have to_tensor in its transforms: digits are normalised as the vendor normalises them"
    assert fault(vit(data_processor="MNISTDataProcessor")) == f"{T} {rule}\nhint: leave it out"


def test_transforms_may_be_in_capitals_survive_being_dumped_and_resize_alone_without_augmentation(load):
    steps = [{"name": "Random_Crop", "size": [8, 8], "padding": 2}, {"name": "to_tensor"}]
    dumped = load(vit(transforms=steps)).train_dataloader.dump()["transforms"][0]
    assert dumped == {"name": "random_crop", "size": [8, 8], "padding": 2, "pad_if_needed": False}
    steps = load(vit(transforms=None, noaugment=True, image_size=[8, 8])).train_dataloader.steps
    assert [(step.name, getattr(step, "size", None)) for step in steps] == [("resize", (8, 8)), ("to_tensor", None)]


def test_what_changes_nothing_here_is_noted(load):
    keys = {"mixup_alpha": 0.2, "cutmix_alpha": 0.1, "num_classes": 10, "ra_sampler_num_repeat": 3}
    assert set(load(vit(**keys)).notes) == {f"{T}.{name}: accepted, no effect" for name in keys}
