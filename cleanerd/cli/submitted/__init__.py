"""Contains only the driver script: Spark adds the script's directory to the module path."""
