"""The Spark sink: Arrow record batches to producers."""
