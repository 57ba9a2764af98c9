"""`python -m pyloader_delta`: the command line."""

from pyloader_delta.cli import main

main()
