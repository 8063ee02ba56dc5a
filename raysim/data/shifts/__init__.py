"""Domains made from any set of images by changing their features, such as Morpho-MNIST's strokes."""
