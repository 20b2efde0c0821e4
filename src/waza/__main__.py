"""`python -m waza` is `waza`."""

from waza.cli import main

main()
