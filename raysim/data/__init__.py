"""Data sets by name as tables, a population's batches as tensors, and encoded images decoded once."""

from raysim.data.catalogue import DATASETS, FORMS, DataSet
from raysim.data.decoding import decode_population
from raysim.data.export import export
from raysim.data.sources import Source, load
from raysim.data.tensors import Decoder, decoder_of

__all__ = ["DATASETS", "FORMS", "DataSet", "Decoder", "Source", "decode_population", "decoder_of", "export", "load"]
