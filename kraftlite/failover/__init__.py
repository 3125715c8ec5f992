"""Measures how long failures lasted: `inputs` reads what a run recorded, `analysis` times it, `page` shows it. It needs no
Spark."""
