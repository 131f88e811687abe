"""The lanes, Firn's kinds of work: when each lane is due, what it finds and publishes, and what it remembers."""
