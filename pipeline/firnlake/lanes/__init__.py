"""The lanes, Firn's kinds of work: what each has to do in a topic partition, or why it waits there."""
