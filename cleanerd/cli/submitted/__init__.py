"""A directory of its own: Spark puts the script's one on the module path, where nothing else may be found."""
