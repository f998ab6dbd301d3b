"""Images cut into patches, as a vision transformer reads them."""

from collections.abc import Mapping
from typing import Protocol, TypeGuard

from cstool.foundation.errors import DataError
from cstool.training.data.changed_samples import WrappedDataset
from cstool.training.data.dataset import Array, Dataset, Field, allocate
from cstool.training.data.images import Shape, written


class ImagesByNumber(Dataset, Protocol):
    """A data set whose samples are images."""

    image_shape: Shape
    """of `x`: channels, height, width"""


def has_images(dataset: Dataset) -> TypeGuard[ImagesByNumber]:
    """Tell whether the samples of a data set are images."""
    return hasattr(dataset, "image_shape")


class PatchesDataset(WrappedDataset):
    """The samples of a data set of images, `patches` (N, numbers of a patch) in the place of `x`.

    Patches follow each other row by row. The numbers of a patch are its pixels, row by row: channel by channel,
    as a convolution has them, or pixel by pixel, as the vendor cuts images.

    Args:
        dataset: of the images
        image: channels, height and width that the model takes
        patch: height and width of a patch; they divide the height and width of an image
        by_channel: whether all pixels of a channel stand together

    Raises:
        DataError: the images are of another size
    """

    def __init__(self, dataset: ImagesByNumber, image: Shape, patch: tuple[int, int], by_channel: bool) -> None:
        if dataset.image_shape != image:
            raise DataError(
                f"{dataset.describe().rpartition(': ')[0]}: the images must be {written(image)}, as the image_size and "
                f"num_channels of the model say, got {written(dataset.image_shape)}"
            )
        self._image, self._patch = image, patch
        # Of (n, channel, row of patches, row in it, column of patches, column in it).
        self._order = (0, 2, 4, 1, 3, 5) if by_channel else (0, 2, 4, 3, 5, 1)
        rows, columns = image[1] // patch[0], image[2] // patch[1]
        size = image[0] * patch[0] * patch[1]
        fields = {name: field for name, field in dataset.fields.items() if name != "x"}
        super().__init__(dataset, {"patches": Field((rows * columns, size), "float32"), **fields})

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        images = allocate({"x": self.dataset.fields["x"]}, len(indices))
        rest = {name: array for name, array in out.items() if name != "patches"}
        self.dataset.read(indices, {**images, **rest}, epoch)
        (channels, height, width), (down, across) = self._image, self._patch
        cut = images["x"].reshape(-1, channels, height // down, down, width // across, across)
        made = out["patches"]
        made[...] = cut.transpose(self._order).reshape(made.shape)
