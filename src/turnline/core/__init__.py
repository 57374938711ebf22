"""The rules, with no I/O in sight: nothing here awaits, reads a clock or touches a file."""
