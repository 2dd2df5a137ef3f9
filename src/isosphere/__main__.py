"""`python -m isosphere`, which torchrun uses."""

from isosphere.cli import main

main()
