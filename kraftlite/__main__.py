"""`python -m kraftlite`."""

from kraftlite.cli.main import main

if __name__ == "__main__":
    main()
