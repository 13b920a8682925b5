"""How the names of metrics that are not scores of a model begin."""

BASELINE = "baseline/"  # before the name of a metric: what a simple method reaches
CONFUSION = "confusion/"  # before the class and the class predicted, in examples
