"""``python -m cleanerd``: the same as the ``cleanerd`` command."""

from cleanerd.cli.main import main

if __name__ == "__main__":
    main()
