"""Record batches as columns and back, by numpy and Arrow, without one Python object per record."""
