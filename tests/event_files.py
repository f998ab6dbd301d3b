"""Event files as TensorBoard's own reader reads them."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars_of(place: Path) -> dict[str, list[tuple[int, float]]]:
    """Return (step, value) of all scalars of a file or folder, by tag."""
    reader = EventAccumulator(str(place), size_guidance={"scalars": 0})
    reader.Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
