"""The sections about data of images, and the transforms of their pixels.

Missing keys have the vendor's defaults. Source: Cerebras Model Zoo 2.10.0, data/vision, and torchvision,
whose names of transforms these are.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from cstool.foundation.yaml_lines.section import Count, List, Positive, Section, beside, rule_error
from cstool.model.params.sections.dataloader import DataloaderParams

Interpolation = Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"]
_Share = Annotated[float, Field(ge=0, le=1)]
_Numbers = Annotated[tuple[float, ...], List, Field(min_length=1)]
_Pair = Annotated[tuple[Positive, Positive], List]
_WithoutEffect = frozenset({"antialias", "inplace"})


_Size = Annotated[Count | tuple[Count, Count], Field(union_mode="left_to_right")]


class TransformParams(Section):
    """A transform of each image."""

    name: str
    without_effect = _WithoutEffect

    @field_validator("size", mode="before", check_fields=False)
    @classmethod
    def _one_or_two(cls, size: Any) -> Any:
        size = tuple(size) if isinstance(size, list) else size
        sides = size if isinstance(size, tuple) else (size,)
        if len(sides) > 2 or not sides or not all(type(side) is int and side > 0 for side in sides):
            raise rule_error("must be a height and a width, or one number, in whole pixels")
        return size[0] if isinstance(size, tuple) and len(size) == 1 else size


_Transforms = Annotated[tuple[SerializeAsAny[TransformParams], ...], List]


class ResizeParams(TransformParams):
    """To a height and a width; of one number, the shorter side is as long as that."""

    name: Literal["resize"]
    size: _Size
    interpolation: Interpolation = "bilinear"

    supported = {"max_size": ()}


class CenterCropParams(TransformParams):
    """The middle of the image, zeros around where it is smaller."""

    name: Literal["center_crop"]
    size: _Size


class RandomCropParams(TransformParams):
    """A random part of the image, after zeros were put around it."""

    name: Literal["random_crop"]
    size: _Size
    padding: Annotated[int, Field(ge=0, le=2**16)] = 0
    pad_if_needed: bool = False

    supported = {"fill": (0,), "padding_mode": ("constant",)}


class RandomResizedCropParams(TransformParams):
    """A random part of the image, with some share of its area and some ratio of its sides, resized."""

    name: Literal["random_resized_crop"]
    size: _Size
    scale: _Pair = (0.08, 1.0)
    ratio: _Pair = (0.75, 4 / 3)
    interpolation: Interpolation = "bilinear"


class RandomFlipParams(TransformParams):
    """Its mirror image, with some probability."""

    name: Literal["random_horizontal_flip", "random_vertical_flip"]
    p: _Share = 0.5


class ToTensorParams(TransformParams):
    """Numbers from 0 to 1 of bytes."""

    name: Literal["to_tensor"]


class NormalizeParams(TransformParams):
    """Mean 0 and standard deviation 1 of each channel, whose own these were."""

    name: Literal["normalize"]
    mean: _Numbers
    std: Annotated[
        tuple[Positive, ...],
        List,
        beside("mean", lambda std, mean: len(std) == len(mean), "must have as many numbers as mean"),
    ]


TRANSFORMS: Mapping[str, type[TransformParams]] = {
    "resize": ResizeParams,
    "center_crop": CenterCropParams,
    "random_crop": RandomCropParams,
    "random_resized_crop": RandomResizedCropParams,
    "random_horizontal_flip": RandomFlipParams,
    "random_vertical_flip": RandomFlipParams,
    "to_tensor": ToTensorParams,
    "normalize": NormalizeParams,
}
"""name of a transform -> its section"""
OTHER_TRANSFORMS = frozenset(
    "autoaug color_jitter_with_prob expand_to_square randaug random_apply random_erase "
    "random_gaussian_blur_random_radius random_gray_scale random_grayscale random_solarize "
    "resize_center_crop_pil_image to_dtype trivialaug".split()
)
"""the vendor's others, which cannot be had"""


class ImageLoaderParams(DataloaderParams):
    """Images, and the transforms that each goes through."""

    transforms: _Transforms = ()


def _check_order(transforms: tuple[TransformParams, ...]) -> None:
    """Check that the transforms that make numbers of pixels come last, or raise the error of a validator."""
    names = [transform.name for transform in transforms]
    last = [name for name in names if name in ("to_tensor", "normalize")]
    if last[:1] != ["to_tensor"] or last.count("to_tensor") > 1 or names[-len(last) :] != last:
        rule = "must have to_tensor once in its transforms, after all that changes pixels and before normalize"
        raise rule_error(
            rule, "at their end, for example: {name: to_tensor}, {name: normalize, mean: [0.5], std: [0.5]}"
        )


class DigitsParams(ImageLoaderParams):
    """Digits of MNIST; `transforms`, which the vendor's reader of them has not, come before pixels are normalised."""

    data_processor: Literal["MNISTDataProcessor"]

    without_effect = DataloaderParams.without_effect | {
        "fake_data_seed",
        "repeat",
        "use_worker_cache",
    }
    supported = dict.fromkeys(
        "data_subset dataset_map_fn mixture num_samples pad_last sampler use_fake_data use_vsl".split(), ()
    )

    @model_validator(mode="after")
    def _pixels_are_normalised_anyway(self) -> Self:
        if made := [each.name for each in self.transforms if each.name in ("to_tensor", "normalize")]:
            rule = f"must not have {made[0]} in its transforms: digits are normalised as the vendor normalises them"
            raise rule_error(rule, "leave it out")
        return self


class PhotosParams(ImageLoaderParams):
    """Photos with a class each: files in a folder for each class, or the files of CIFAR.

    The vendor draws mixtures of images by `mixup_alpha` and `cutmix_alpha`, and then reads batches without them.
    """

    data_processor: Literal["ImageNet1KProcessor", "CIFAR10Processor", "CIFAR100Processor"]
    split: Literal["train", "val", "test"]  # type: ignore[assignment]
    image_size: Annotated[tuple[Count, Count], List] = (224, 224)
    shuffle: bool = True
    noaugment: bool = False

    without_effect = DataloaderParams.without_effect | {
        "cutmix_alpha",
        "mixup_alpha",
        "num_classes",
        "ra_sampler_num_repeat",
        "use_fake_data",
        "use_worker_cache",
    }
    supported = {"sampler": ("random",)}

    @model_validator(mode="after")
    def _numbers_are_made_at_last(self) -> Self:
        if not self.noaugment:
            _check_order(self.transforms)
        return self

    @property
    def steps(self) -> tuple[TransformParams, ...]:
        """The transforms; with `noaugment` images are resized to `image_size`, and that is all."""
        if not self.noaugment:
            return self.transforms
        return ResizeParams(name="resize", size=self.image_size), ToTensorParams(name="to_tensor")
