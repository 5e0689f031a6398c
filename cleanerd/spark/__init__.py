"""Spark: cleaning what one machine cannot. Everything but :mod:`cleanerd.spark.launch` needs the extra ``spark``."""
