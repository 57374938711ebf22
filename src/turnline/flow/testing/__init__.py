"""Testing flows: cases with stubs, and recorded runs, played on the real engine without a world (F14)."""
