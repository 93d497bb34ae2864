"""`python -m experiential_lab` is the command line."""

from experiential_lab.cli import main

main()
