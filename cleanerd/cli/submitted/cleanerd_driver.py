"""What ``spark-submit`` runs: cleanerd with the command line that it was started with (``spark/launch.py``)."""

from cleanerd.cli.main import main

if __name__ == "__main__":
    main()
