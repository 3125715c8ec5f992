"""The read side of the metadata log: records, images, the loader that folds the one into the other, and its publishers."""
