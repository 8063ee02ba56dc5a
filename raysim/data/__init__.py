"""Data sets by name as tables, a population's batches as tensors, and encoded images decoded once."""

from raysim.data.decoding import decode_population
from raysim.data.export import export
from raysim.data.sources import DATASETS, DataSet, Source, load
from raysim.data.tensors import Decoder, decoder_of

__all__ = ["DATASETS", "DataSet", "Decoder", "Source", "decode_population", "decoder_of", "export", "load"]
