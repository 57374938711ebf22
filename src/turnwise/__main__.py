"""`python -m turnwise` is `turnwise`."""

from turnwise.cli import main

main()
