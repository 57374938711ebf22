"""The hub: posts drafts, keeps states, tells whoever has the floor."""
