"""The pages of docs/ that follow from the code, one module each; `docs/generate.py` writes them."""
