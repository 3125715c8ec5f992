"""The jobs of the pipeline, each with a function of its name. The only modules here that need Spark, and Java."""
