"""How hard hypothesis tries: a little in every run, a lot in `./run soak`."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("every run", max_examples=40, deadline=None)
settings.register_profile("soak", max_examples=5_000, deadline=None)
settings.load_profile("soak" if os.environ.get("TURNWISE_SOAK") else "every run")
