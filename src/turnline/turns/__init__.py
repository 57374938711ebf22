"""Taking turns: one engine for everything that has the floor."""
