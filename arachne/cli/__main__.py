"""`python -m arachne.cli` is the command `arachne`."""

from arachne.cli import main

main()
