"""A directory of its own: Spark puts the script's directory on the module path, which must contain nothing else."""
