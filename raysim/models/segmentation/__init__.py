"""The segmentation network DeepLabv3+, which FixBN trains on Cityscapes."""
