"""`python -m turnline` is `turnline`."""

from turnline.cli import main

main()
