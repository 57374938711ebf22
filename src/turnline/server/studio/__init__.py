"""The studio: pages that show channels, runs, tasks and flows in a browser. `static/` is all of it."""
