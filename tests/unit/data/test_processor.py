"""The vendor's names of data processors."""

import pytest

from cstool.data import Hdf5TextDataset, open_dataset


@pytest.mark.parametrize("name", ["GptHDF5MapDataProcessor", "GptHDF5DataProcessor"])
def test_both_language_model_processors_read_the_same_files(tmp_path, samples, write, name):
    write(tmp_path / "a.h5", samples(3))
    dataset = open_dataset(name, [tmp_path], max_sequence_length=2)
    assert (type(dataset), dataset.sample_count, dataset.fields["labels"].shape) == (Hdf5TextDataset, 3, (2,))


def test_the_mnist_processor_reads_the_part_asked_for(mnist):
    mnist("train", 3)
    mnist("t10k", 2)
    counts = [open_dataset("MNISTDataProcessor", [mnist.folder], split=s).sample_count for s in (None, "train", "val")]
    assert counts == [3, 3, 2]


def test_an_unknown_processor_is_reported_with_the_nearest(tmp_path, error_of):
    assert error_of(open_dataset, "GptHDF5Processor", [tmp_path]) == (
        "data_processor: must be one of GptHDF5MapDataProcessor, GptHDF5DataProcessor, MNISTDataProcessor, "
        "got GptHDF5Processor\nhint: GptHDF5DataProcessor is the nearest"
    )
