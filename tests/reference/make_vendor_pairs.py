"""Record the samples that the vendor's data processors for T5 and the Transformer make of small files.

    OMP_NUM_THREADS=1 python -m tests.reference.make_vendor_pairs MODEL_ZOO

Needs the environment that `make_vendor_curves.py` describes; MODEL_ZOO is a folder with the Model Zoo 2.10.0. It
imports nothing of cstool.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.reference import vendor_trainer
from tests.reference.pair_cases import ASKED, PLACE, SENTINELS, SOURCE, TARGET, write_pair_files
from tests.reference.recorded_file import as_text


def samples_of(processor: Any) -> list[dict[str, str]]:
    """All samples in order, each array as numbers with spaces between."""
    return [
        {name: " ".join(map(str, array[0].tolist())) for name, array in batch.items() if name != "decoder_input_length"}
        for batch in processor.create_dataloader()
    ]


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model_zoo", type=Path)
    version = vendor_trainer.import_vendor(parser.parse_args().model_zoo)
    from cerebras.modelzoo.data.nlp.t5 import T5DynamicDataProcessor as t5
    from cerebras.modelzoo.data.nlp.t5.t5_utils import get_raw_sequence_lengths
    from cerebras.modelzoo.data.nlp.transformer import TransformerDynamicDataProcessor as transformer

    with tempfile.TemporaryDirectory() as folder:
        vocabulary, texts, pairs = write_pair_files(Path(folder) / "files")

        def config(processor: str, data: Path, **more: Any) -> dict[str, Any]:
            return {
                "data_processor": processor,
                "src_vocab_file": str(vocabulary),
                "src_data_dir": str(data),
                "batch_size": 1,
                "shuffle": False,
                "shuffle_seed": 1,
                "src_max_sequence_length": SOURCE,
                "tgt_max_sequence_length": TARGET,
                **more,
            }

        spans = t5.T5DynamicDataProcessorConfig(**config("T5DynamicDataProcessor", texts, extra_ids=SENTINELS))
        translation = transformer.TransformerDynamicDataProcessorConfig(
            **config("TransformerDynamicDataProcessor", pairs)
        )
        found = {
            "made with": str(version),
            "lengths": {str(asked): list(get_raw_sequence_lengths(asked)) for asked in ASKED},
            "spans": samples_of(t5.T5DynamicDataProcessor(spans)),
            "translation": samples_of(transformer.TransformerDynamicDataProcessor(translation)),
        }
    PLACE.write_text(as_text(found))


if __name__ == "__main__":
    main()
