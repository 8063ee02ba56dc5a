"""Models by name, built for the shape and classes of a population and initialised from a key."""

from raysim.models.build import MODELS, Model, build

__all__ = ["MODELS", "Model", "build"]
